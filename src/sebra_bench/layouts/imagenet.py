"""ImageNet-1K, or any part of it: `train/` and `val/` with one folder per synset.

The class is the synset; `val/` is the test split, as in the paper. What `w`, `in9` and `inr` name
is measured by `sebra evaluate` (see `imagenet_companions`); no other command opens it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import ids_of, require_folder
from sebra.samples.layouts import layout
from sebra.samples.table import SPLITS, ImageFiles, Samples
from sebra_bench.layouts.synsets import images_of, is_synset, synsets_in

CARTON = "n02971356"


@dataclass(frozen=True)
class ImagenetOptions:
    """Which part of ImageNet, and which companions `sebra evaluate` measures.

    `classes`: synsets with commas between, or a text file with one in a line; `per_class`: at most
    so many training images of a class (0: all). `w=1`: ImageNet-W, with `text` and `font` for its
    mark; `carton`: the class of the Carton gap; `in9`, `inr`: folders of ImageNet-9, ImageNet-R.
    """

    classes: str = ""
    per_class: int = 0
    w: int = 0
    text: str = ""
    font: str = ""
    carton: str = CARTON
    in9: str = ""
    inr: str = ""


@layout(
    "imagenet",
    "ImageNet-1K or a part of it (synset folders); with ImageNet-W, -9 and -R beside it",
    ImagenetOptions,
)
def read(path: Path, options: ImagenetOptions) -> Samples:
    """Class: the synset. No attributes, no validation."""
    root = require_folder(path, "imagenet")
    _check(options)
    classes = chosen_classes(root, options)
    paths: list[Path] = []
    codes: list[tuple[int, int]] = []  # class, split
    for folder, split in (("train", 0), ("val", SPLITS.index("test"))):
        if folder == "val":
            synsets_in(root / folder, "imagenet")
        for label, synset in enumerate(classes):
            images = images_of(root / folder, synset, "imagenet")
            if folder == "train" and options.per_class:
                images = images[: options.per_class]
            paths += images
            codes += [(label, split)] * len(images)
    table = np.array(codes, dtype=np.int64).reshape(-1, 2)
    return Samples(
        ids=ids_of(paths, root),
        labels=table[:, 0],
        classes=classes,
        split=table[:, 1].astype(np.int8),
        content=ImageFiles(tuple(paths)),
        name="imagenet",
    )


def chosen_classes(root: Path, options: ImagenetOptions) -> tuple[str, ...]:
    """The synsets in use, sorted, which is the order of the published class numbers."""
    present = synsets_in(root / "train", "imagenet")
    if not options.classes:
        return tuple(present)
    wanted = sorted(set(_listed(options.classes)))
    for synset in wanted:
        if synset not in present:
            raise UsageError(f"imagenet: classes: {root / 'train'} has no folder {synset!r}")
    return tuple(wanted)


def _listed(text: str) -> list[str]:
    file = Path(text).expanduser()
    if "," not in text and not is_synset(text):
        if not file.is_file():
            raise UsageError(f"imagenet: classes: {text!r} is neither a synset nor a file of them")
        text = ",".join(file.read_text(encoding="utf-8").split())
    return [name.strip() for name in text.split(",") if name.strip()]


def _check(options: ImagenetOptions) -> None:
    if options.per_class < 0:
        raise UsageError(f"imagenet: per_class must not be negative, not {options.per_class}")
    if options.w not in {0, 1}:
        raise UsageError(f"imagenet: w must be 0 or 1, not {options.w}")
    for name in ("in9", "inr"):
        folder = getattr(options, name)
        if folder:
            require_folder(Path(folder).expanduser(), f"imagenet: {name}")
