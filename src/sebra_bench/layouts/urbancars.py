"""UrbanCars as published: group folders `obj-X_bg-Y_co_occur_obj-Z` under split folders."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import ids_of, images_in, require_folder, subfolders
from sebra.samples.layouts import NoOptions, layout
from sebra.samples.table import SPLITS, Attribute, ImageFiles, Samples

WORDS = ("urban", "country")  # the published index: 0 = urban
_WORD = "(urban|country)"
_GROUP = re.compile(f"obj-{_WORD}_bg-{_WORD}_co_occur_obj-{_WORD}")
_MASK = "_mask.png"  # the published folders keep the masks beside the pictures
_VERSION = re.compile(r"bg-([0-9.]+)_co_occur_obj-([0-9.]+)")


@layout(
    "urbancars",
    "UrbanCars: cars with a biased background and a biased co-occurring object",
)
def read(path: Path, options: NoOptions) -> Samples:
    """Class: the car. Attributes: background, object; aligned where they match the class."""
    root = require_folder(path, "urbancars")
    paths: list[Path] = []
    codes: list[tuple[int, int, int, int]] = []  # class, background, object, split
    for split, folder in _split_folders(root).items():
        for name in subfolders(folder):
            match = _GROUP.fullmatch(name)
            if match is None:
                raise UsageError(
                    f"urbancars: {folder / name} is not named obj-*_bg-*_co_occur_obj-*"
                )
            images = [i for i in images_in(folder / name) if not i.endswith(_MASK)]
            paths += [folder / name / image for image in images]
            words = tuple(WORDS.index(word) for word in match.groups())
            codes += [(words[0], words[1], words[2], split)] * len(images)
    table = np.asarray(codes, dtype=np.int64).reshape(-1, 4)
    return Samples(
        ids=ids_of(paths, root),
        labels=table[:, 0],
        classes=WORDS,
        split=table[:, 3].astype(np.int8),
        content=ImageFiles(tuple(paths)),
        attributes={
            "background": Attribute("background", table[:, 1], WORDS, aligned=(0, 1)),
            "object": Attribute("object", table[:, 2], WORDS, aligned=(0, 1)),
        },
        name="urbancars",
    )


def _split_folders(root: Path) -> dict[int, Path]:
    """Where each split is: train in the most biased version that has it, the rest in the least."""
    matches = [(name, _VERSION.fullmatch(name)) for name in subfolders(root)]
    versions = sorted((float(m[1]), name) for name, m in matches if m)
    places = [root / name for _, name in versions] or [root]
    found: dict[int, Path] = {}
    for code, split in enumerate(SPLITS):
        where = [place / split for place in places if (place / split).is_dir()]
        if where:
            found[code] = where[-1] if split == "train" else where[0]
    if 0 not in found:
        raise UsageError(f"urbancars: no bg-*_co_occur_obj-*/train folder in {root}")
    return found
