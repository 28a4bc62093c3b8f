"""Living17 (BREEDS): 17 kinds of animals out of ImageNet, each made of four of its classes.

Two of the four (the source) are trained on; the test split holds all four, so that the gap of
`domain` is what the other two (the target) cost. `living17.json` is the published assignment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import ids_of, require_folder
from sebra.samples.layouts import layout
from sebra.samples.table import SPLITS, Attribute, ImageFiles, Samples
from sebra_bench.layouts.synsets import images_of, synsets_in

DOMAINS = ("source", "target")
_PARTS = {"train": "train", "val": "test"}  # ImageNet's folder: our split


@dataclass(frozen=True)
class Living17Options:
    """`domains`: `source` trains on the source subpopulations only, `all` on all four."""

    domains: str = "source"


@dataclass(frozen=True)
class Subpopulation:
    """One class of ImageNet as a part of one kind of animal."""

    kind: str
    domain: str
    synset: str
    name: str


@layout(
    "living17",
    "Living17 (BREEDS): 17 kinds of animals out of a copy of ImageNet, by subpopulation",
    Living17Options,
)
def read(path: Path, options: Living17Options) -> Samples:
    """Class: the kind. Attribute: the domain, or with `domains=all` the subpopulation."""
    if options.domains not in {"source", "all"}:
        raise UsageError(f"living17: domains must be source or all, not {options.domains!r}")
    root = require_folder(path, "living17")
    parts = subpopulations()
    classes = tuple(dict.fromkeys(part.kind for part in parts))
    paths: list[Path] = []
    rows: list[tuple[int, int, int, int]] = []  # class, split, domain, subpopulation
    for folder, split in _PARTS.items():
        synsets_in(root / folder, "living17")
        left_out = "target" if split == "train" and options.domains == "source" else None
        for number, part in enumerate(parts):
            if part.domain == left_out:
                continue
            images = images_of(root / folder, part.synset, "living17", part.name)
            paths += images
            codes = classes.index(part.kind), SPLITS.index(split), DOMAINS.index(part.domain)
            rows += [(*codes, number)] * len(images)
    table = np.array(rows, dtype=np.int64)
    if options.domains == "source":
        aligned = (DOMAINS.index("source"),) * len(classes)
        attribute = Attribute("domain", table[:, 2], DOMAINS, aligned)
    else:
        names = tuple(part.name for part in parts)
        attribute = Attribute("subpopulation", table[:, 3], names)
    return Samples(
        ids=ids_of(paths, root),
        labels=table[:, 0],
        classes=classes,
        split=table[:, 1].astype(np.int8),
        content=ImageFiles(tuple(paths)),
        attributes={attribute.name: attribute},
        name="living17",
    )


def subpopulations() -> list[Subpopulation]:
    """The 68 classes in the published order of the kinds, source before target."""
    text = (files("sebra_bench.layouts") / "living17.json").read_text(encoding="utf-8")
    return [
        Subpopulation(kind, domain, synset, name)
        for kind, domains in json.loads(text).items()
        for domain in DOMAINS
        for synset, name in domains[domain].items()
    ]
