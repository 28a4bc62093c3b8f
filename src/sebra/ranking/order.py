"""From buckets and scores to ranks and spuriosity, class by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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

    With levels it is the paper's measure (definition 2: the share of the spurious attributes that a
    sample has), the stronger ones counting more: every level has an equal part of the scale, in
    which it falls evenly from sample to sample.
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
