"""CelebA with Smiling as the target, biased by Male and Young, for whatever images are present.

As in the paper, smiling goes with female and young, each in 95 % of a class. The published split
cannot be assumed (any subset of the images may be there), so one is drawn: disjoint, the same
every time, and another one for each value of `split`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import ids_of, images_in, require_folder
from sebra.samples.layouts import layout
from sebra.samples.table import Attribute, ImageFiles, IntArray, Samples

TARGET, BIASES = "Smiling", ("Male", "Young")
CLASSES = ("not smiling", "smiling")
LEVELS = {"Male": ("female", "male"), "Young": ("old", "young")}
ALIGNED = {"Male": (1, 0), "Young": (0, 1)}  # by class: not smiling ↔ male, old
SHARES = (0.9025, 0.0475, 0.0475, 0.0025)  # 95 % twice; both, Male only, Young only, neither
HELD_OUT = (11, 60)  # validation takes 11/60 of the smallest group, test twice that
IMAGES, ATTRIBUTES = "img_align_celeba", "list_attr_celeba.txt"


@dataclass(frozen=True)
class CelebaOptions:
    """`split`: which draw; `test`: `balanced`, or `rest` for all that is left over."""

    split: int = 0
    test: str = "balanced"


@layout(
    "celeba",
    "CelebA (img_align_celeba/, list_attr_celeba.txt): Smiling, biased by Male and Young",
    CelebaOptions,
)
def read(path: Path, options: CelebaOptions) -> Samples:
    """Balanced val and test, then the largest training set with the paper's group shares."""
    if options.test not in {"balanced", "rest"}:
        raise UsageError(f"celeba: test must be balanced or rest, not {options.test!r}")
    if options.split < 0:
        raise UsageError(f"celeba: split must not be negative, not {options.split}")
    root = require_folder(path, "celeba")
    names, table = _attribute_table(root)
    smiling, values = table[:, 0], table[:, 1:]
    split = _draw_split(smiling, values, options)
    rows = np.flatnonzero(split >= 0)
    paths = [root / IMAGES / names[row] for row in rows]
    return Samples(
        ids=ids_of(paths, root),
        labels=smiling[rows],
        classes=CLASSES,
        split=split[rows].astype(np.int8),
        content=ImageFiles(tuple(paths)),
        attributes={
            name: Attribute(name, values[rows, k], LEVELS[name], ALIGNED[name])
            for k, name in enumerate(BIASES)
        },
        name="celeba",
    )


def training_sizes(available: IntArray) -> IntArray:
    """Per class and group, the largest training set with `SHARES` and classes of equal size.

    `available[c, g]` counts the images at hand; groups are in the order of `SHARES`.
    """
    high = int(available.sum(axis=1).min())
    for per_class in range(high, 0, -1):
        sizes = np.array([max(1, round(per_class * share)) for share in SHARES], dtype=np.int64)
        sizes[0] = per_class - sizes[1:].sum()
        if sizes[0] > 0 and (sizes <= available).all():
            return np.tile(sizes, (len(available), 1))
    raise UsageError("celeba: too few images for a training set, every group needs some")


def _draw_split(smiling: IntArray, values: IntArray, options: CelebaOptions) -> IntArray:
    """0, 1, 2 for train, val, test and -1 for images that are not used."""
    conflicting = np.stack(
        [values[:, k] != np.array(ALIGNED[b])[smiling] for k, b in enumerate(BIASES)]
    )
    group = 2 * conflicting[0] + conflicting[1]
    order = np.random.default_rng([options.split, 2024]).permutation(len(smiling))
    members = [
        [order[(smiling == c)[order] & (group == g)[order]] for g in range(4)] for c in range(2)
    ]
    smallest = min(len(rows) for groups in members for rows in groups)
    val = smallest * HELD_OUT[0] // HELD_OUT[1]
    if val == 0:
        raise UsageError(
            f"celeba: a group of {TARGET} x {' x '.join(BIASES)} has only {smallest} images, "
            "every one needs at least 6"
        )
    test = 2 * val
    left = np.array([[len(rows) - val - test for rows in groups] for groups in members])
    train = training_sizes(left)
    split = np.full(len(smiling), -1, dtype=np.int64)
    for c, groups in enumerate(members):
        for g, rows in enumerate(groups):
            end = val + test + train[c, g]
            split[rows[:val]] = 1
            split[rows[val : val + test]] = 2
            split[rows[val + test : end]] = 0
            if options.test == "rest":
                split[rows[end:]] = 2
    return split


def _attribute_table(root: Path) -> tuple[list[str], IntArray]:
    """Names of the images that are present and, per image, target and biases as 0 or 1."""
    file = root / ATTRIBUTES
    if not file.is_file():
        raise UsageError(f"celeba: {file} is missing")
    present = set(images_in(require_folder(root / IMAGES, "celeba")))
    lines = file.read_text(encoding="utf-8").splitlines()
    header = lines[1].split() if len(lines) > 1 else []
    for name in (TARGET, *BIASES):
        if name not in header:
            raise UsageError(f"celeba: {file} has no attribute {name} in its second line")
    columns = [1 + header.index(name) for name in (TARGET, *BIASES)]
    names: list[str] = []
    rows: list[list[bool]] = []
    for number, line in enumerate(lines[2:], start=3):
        cells = line.split()
        if not cells or cells[0] not in present:
            continue
        if len(cells) != len(header) + 1:
            raise UsageError(
                f"celeba: {file} line {number} has {len(cells) - 1} values, not {len(header)}"
            )
        names.append(cells[0])
        rows.append([cells[column] == "1" for column in columns])
    if not names:
        raise UsageError(f"celeba: no image of {file} is in {root / IMAGES}")
    return names, np.array(rows, dtype=np.int64)
