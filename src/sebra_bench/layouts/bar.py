"""Biased Action Recognition as published: `train/` and `test/` with names `climbing_12.jpg`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import ids_of, images_in, require_folder
from sebra.samples.layouts import NoOptions, layout
from sebra.samples.table import SPLITS, ImageFiles, Samples


@layout(
    "bar",
    "Biased Action Recognition: train/ and test/ with names like climbing_12.jpg",
)
def read(path: Path, options: NoOptions) -> Samples:
    """Class: the part of the name before the last underscore. No attributes, no validation."""
    root = require_folder(path, "bar")
    paths: list[Path] = []
    names: list[str] = []
    splits: list[int] = []
    for split in ("train", "test"):
        folder = require_folder(root / split, "bar")
        for image in images_in(folder):
            name, underscore, _ = image.rpartition("_")
            if not underscore or not name:
                raise UsageError(f"bar: {folder / image} is not named CLASS_NUMBER")
            paths.append(folder / image)
            names.append(name)
            splits.append(SPLITS.index(split))
    classes = tuple(sorted(set(names)))
    code = {name: i for i, name in enumerate(classes)}
    return Samples(
        ids=ids_of(paths, root),
        labels=np.array([code[name] for name in names], dtype=np.int64),
        classes=classes,
        split=np.array(splits, dtype=np.int8),
        content=ImageFiles(tuple(paths)),
        name="bar",
    )
