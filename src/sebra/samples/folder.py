"""A folder of images: class folders, or split folders with class folders in them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import (
    SPLIT_NAMES,
    ids_of,
    images_in,
    images_under,
    require_folder,
    split_code,
    subfolders,
)
from sebra.samples.table import ImageFiles, Samples
from sebra.whole import utf8

log = logging.getLogger(__name__)


def read_folder(path: Path) -> Samples:
    """Class folders only: all samples are training samples. Class names are sorted."""
    root = require_folder(path, "class folders of images")
    splits = _splits(root)
    paths: list[Path] = []
    names: list[str] = []
    codes: list[int] = []
    for folder, code in splits:
        for name in subfolders(folder):
            images = images_under(folder / name)
            if not images:
                log.warning("%s: class folder without images, left out", folder / name)
            paths += images
            names += [utf8(name)] * len(images)
            codes += [code] * len(images)
    if not paths:
        raise UsageError(_nothing_found(root))
    classes = tuple(sorted(set(names)))
    code_of = {name: i for i, name in enumerate(classes)}
    return Samples(
        ids=ids_of(paths, root),
        labels=np.array([code_of[name] for name in names], dtype=np.int64),
        classes=classes,
        split=np.array(codes, dtype=np.int8),
        content=ImageFiles(tuple(paths)),
        name=utf8(root.name) or "data",
    )


def _splits(root: Path) -> list[tuple[Path, int]]:
    """The folders that hold class folders, with their split."""
    names = subfolders(root)
    # A class may be called "train": it holds images, a split holds class folders.
    if "train" not in names or not subfolders(root / "train"):
        known = [n for n in names if n.lower() in SPLIT_NAMES and subfolders(root / n)]
        if known and len(known) == len(names):
            raise UsageError(f"{root}: has {', '.join(known)} but no train folder")
        return [(root, 0)]
    return [(root / name, split_code(name, f"{root}: folder {name}")) for name in names]


def _nothing_found(root: Path) -> str:
    if images_in(root):
        return f"{root}: images lie in the folder itself, expected one folder per class"
    return f"{root}: no images found, expected one folder of images per class"
