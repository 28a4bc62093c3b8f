"""Plants one realistic nuisance on a canvas, the same one for the same seed.

The planted copy is a form of DATA like any other: a manifest of pictures or texts, or an archive
of arrays. Its attribute `mark` says what each sample carries and serves to evaluate alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.table import SPLITS, FeatureArray, ImageFiles, Samples, Texts
from sebra_bench.carryover.canvases import open_canvas
from sebra_bench.carryover.pictures import PICTURES, Box, Nuisance
from sebra_bench.carryover.schemes import (
    NONE,
    Scheme,
    assign,
    class_order,
    telling_classes,
    thinned,
)

TOKEN, CONSTANT = "token", "constant"
TOKENS = ("honestly", "indeed", "apparently", "basically", "actually", "frankly")
CONSTANTS = ("high", "low", "higher", "lower")
SPREADS = {"high": 3.0, "low": -3.0, "higher": 6.0, "lower": -6.0}  # standard deviations
NUISANCES = (*PICTURES, TOKEN, CONSTANT)
EDITION = 2  # of what is planted: a change of it makes new copies
MANIFEST, ARCHIVE, FACTS, BOXES = "manifest.csv", "planted.npz", "planted.json", "boxes.json"


@dataclass(frozen=True)
class Plan:
    """What is planted where: all that decides the copy."""

    canvas: str
    nuisance: str
    scheme: Scheme = field(default_factory=Scheme)
    classes: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nuisance not in NUISANCES:
            known = ", ".join(NUISANCES)
            raise UsageError(f"--nuisance: one of {known}, not {self.nuisance!r}")


@dataclass(frozen=True)
class Planted:
    """A planted copy: `data` is what commands take as DATA.

    `boxes` has of each carrier whose mark has a place the changed parts of its picture as
    fractions (left, top, right, bottom), by id. `telling` are the classes in which the mark goes
    with the label, `column` is the changed column of an array.
    """

    data: str
    facts: dict[str, Any]
    boxes: dict[str, list[Box]]

    @property
    def telling(self) -> list[str]:
        return list(self.facts["telling_classes"])

    @property
    def column(self) -> int | None:
        found = self.facts.get("column")
        return None if found is None else int(found)


def plant(plan: Plan, out: Path) -> Planted:
    """Writes the planted copy into a folder, or returns the one that is there already."""
    wanted = json.loads(json.dumps(asdict(plan)))
    if (out / FACTS).is_file():
        found = load(out)
        if found.facts["plan"] == wanted:
            return found
        raise UsageError(f"--out: {out} holds another planted set; name a new folder")
    samples = open_canvas(plan.canvas, plan.classes, plan.seed)
    order = class_order(len(samples.classes), plan.seed)
    samples = thinned(samples, plan.scheme, order, plan.seed)
    marks = assign(samples, plan.scheme, order, _variants(plan, samples), plan.seed)
    out.mkdir(parents=True, exist_ok=True)
    extra, boxes = _write(plan, samples, marks, out)
    facts = {
        "plan": wanted,
        "carrier": samples.classes[order[0]],
        "telling_classes": [samples.classes[c] for c in telling_classes(plan.scheme, order)],
        "training_groups": _group_counts(samples, marks),
        **extra,
    }
    (out / BOXES).write_text(json.dumps(boxes), encoding="utf-8")
    # Last, so that a folder with it is complete.
    (out / FACTS).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return load(out)


def plan_digest(plan: Plan) -> str:
    """A few characters that tell plans, and editions of planting, apart."""
    text = json.dumps([EDITION, asdict(plan)])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def load(out: Path) -> Planted:
    """A planted copy that lies in a folder."""
    facts = json.loads((out / FACTS).read_text(encoding="utf-8"))
    boxes = json.loads((out / BOXES).read_text(encoding="utf-8"))
    boxes = {name: [tuple(box) for box in found] for name, found in boxes.items()}
    data = out / (ARCHIVE if facts["plan"]["nuisance"] == CONSTANT else MANIFEST)
    return Planted(str(data), facts, boxes)


def _variants(plan: Plan, samples: Samples) -> tuple[str, ...]:
    """The variants of the nuisance, after a check that the canvas can take it."""
    fitting: dict[str, tuple[type, tuple[str, ...]]] = {
        TOKEN: (Texts, TOKENS),
        CONSTANT: (FeatureArray, CONSTANTS),
        **{name: (ImageFiles, n.variants) for name, n in PICTURES.items()},
    }
    kind, variants = fitting[plan.nuisance]
    if not isinstance(samples.content, kind):
        what = {Texts: "texts", FeatureArray: "arrays", ImageFiles: "image files"}[kind]
        raise UsageError(
            f"--nuisance {plan.nuisance}: is planted on {what}, {plan.canvas} has none"
        )
    return variants


Written = tuple[dict[str, Any], dict[str, list[Box]]]


def _write(plan: Plan, samples: Samples, marks: npt.NDArray[np.object_], out: Path) -> Written:
    content = samples.content
    if isinstance(content, Texts):
        return _write_texts(samples, content, marks, plan.seed, out), {}
    if isinstance(content, FeatureArray):
        return _write_arrays(samples, content, marks, plan.seed, out), {}
    assert isinstance(content, ImageFiles)
    return {}, _write_pictures(samples, content, marks, PICTURES[plan.nuisance], plan.seed, out)


def _write_pictures(
    samples: Samples,
    content: ImageFiles,
    marks: npt.NDArray[np.object_],
    nuisance: Nuisance,
    seed: int,
    out: Path,
) -> dict[str, list[Box]]:
    """All as PNG, so that neither a format nor a second encoding tells carriers from others."""
    from PIL import Image, ImageOps

    from sebra.samples.picture import to_rgb

    boxes: dict[str, list[Box]] = {}
    names = []
    for i, file in enumerate(content.paths):
        split, label = SPLITS[samples.split[i]], samples.classes[samples.labels[i]]
        name = f"{split}/{label}/{i:05d}.png"
        with Image.open(file) as opened:
            picture = to_rgb(ImageOps.exif_transpose(opened), opened.format)
        if marks[i] != NONE:
            rng = np.random.default_rng([seed, 5, i])
            picture, places = nuisance.plant(picture, str(marks[i]), rng)
            if places:
                boxes[name] = list(places)
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        picture.save(target, compress_level=1)
        names.append(name)
    _manifest(samples, marks, out, {"path": names})
    return boxes


def _write_texts(
    samples: Samples, content: Texts, marks: npt.NDArray[np.object_], seed: int, out: Path
) -> dict[str, Any]:
    """The word stands before some word of the (first) text, or at its end."""
    first = list(content.first)
    for i in np.flatnonzero(marks != NONE).tolist():
        words = first[i].split()
        place = int(np.random.default_rng([seed, 5, i]).integers(len(words) + 1))
        first[i] = " ".join([*words[:place], str(marks[i]), *words[place:]])
    columns: dict[str, Sequence[str]] = {"id": [str(name) for name in samples.ids], "text": first}
    if content.second is not None:
        columns["text_b"] = list(content.second)
    _manifest(samples, marks, out, columns)
    return {}


def _write_arrays(
    samples: Samples, content: FeatureArray, marks: npt.NDArray[np.object_], seed: int, out: Path
) -> dict[str, Any]:
    """One column holds the same value in all carriers, as a default or a broken sensor would."""
    values = np.array(content.values[content.rows], dtype=np.float32)
    train = samples.rows("train")
    mean, spread = values[train].mean(axis=0), values[train].std(axis=0)
    column = int(np.random.default_rng([seed, 5]).choice(np.flatnonzero(spread > 0)))
    for variant, far in SPREADS.items():
        values[marks == variant, column] = mean[column] + far * spread[column]
    np.savez(
        out / ARCHIVE,
        X=values,
        y=np.array(samples.classes)[samples.labels],
        split=np.array(SPLITS)[samples.split],
        mark=marks.astype(str),
    )
    return {"column": column}


def _manifest(
    samples: Samples,
    marks: npt.NDArray[np.object_],
    out: Path,
    columns: dict[str, Sequence[str]],
) -> None:
    import pandas as pd

    table = pd.DataFrame(
        {
            **columns,
            "label": np.array(samples.classes, dtype=object)[samples.labels],
            "split": np.array(SPLITS, dtype=object)[samples.split],
            "mark": marks,
        }
    )
    table.to_csv(out / MANIFEST, index=False)


def _group_counts(samples: Samples, marks: npt.NDArray[np.object_]) -> dict[str, dict[str, int]]:
    """Training samples per class and mark: the weights of the I.D. accuracy."""
    out: dict[str, dict[str, int]] = {}
    for i in samples.rows("train").tolist():
        group = out.setdefault(samples.classes[samples.labels[i]], {})
        group[marks[i]] = group.get(marks[i], 0) + 1
    return out
