"""From buckets and scores to ranks and spuriosity, class by class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def ranks_within_classes(bucket: Array, score: Array, labels: Array) -> Array:
    """0 = most spurious of its class, no ties: by bucket, then falling score.

    Equal scores fall in a fixed random order: files are often stored group by group, and their
    order must not pass for a ranking.
    """
    shuffle = np.random.default_rng(len(labels)).permutation(len(labels))
    order = np.lexsort((shuffle, -score, bucket, labels))
    counts = np.bincount(labels[order], minlength=int(labels.max()) + 1 if len(labels) else 0)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - starts[labels[order]]
    return rank


def spuriosity_of(rank: Array, labels: Array, level: Array | None = None, levels: int = 1) -> Array:
    """1 for the most spurious sample of a class, 0 for the least, falling evenly with rank.

    With levels it is the measure of definition 2, the share of the spurious attributes that a
    sample has, the stronger ones counting more: every level has an equal part of the scale.
    """
    if level is None:
        level = np.zeros(len(rank), dtype=np.int64)
    part = labels * levels + level
    order = np.lexsort((rank, part))
    size = np.bincount(part, minlength=1)
    starts = np.cumsum(size) - size
    place = np.empty(len(rank), dtype=np.int64)
    place[order] = np.arange(len(rank)) - starts[part[order]]
    steps = np.maximum(size[part] - (level == 0), 1)  # the last of the lowest level has 0
    out: Array = (level + 1 - place / steps) / levels
    return out


def parts_of(pattern: Ints, score: Floats, labels: Ints, parts: int) -> Ints:
    """Buckets: by pattern, and inside a class and pattern by score, in parts of like size."""
    sub = np.zeros(len(labels), dtype=np.int64)
    for here in _alike(pattern, labels):
        place = np.empty(len(here), dtype=np.int64)
        place[np.argsort(-score[here], kind="stable")] = np.arange(len(here))
        sub[here] = place * min(parts, len(here)) // len(here)
    return pattern * parts + sub


def standing(values: Floats, pattern: Ints, labels: Ints) -> Floats:
    """Values in standard deviations from the mean of their class and pattern."""
    out = np.zeros(len(values))
    for here in _alike(pattern, labels):
        spread = max(float(values[here].std()), 1e-12)
        out[here] = (values[here] - values[here].mean()) / spread
    return out


def _alike(pattern: Ints, labels: Ints) -> Iterator[Ints]:
    """The samples of every class and pattern."""
    key = pattern * (labels.max() + 1) + labels
    yield from (np.flatnonzero(key == k) for k in np.unique(key))
