"""Performance Disparity: how much better the tail of a ranking teaches than its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sebra.measuring.ranks import Array, order_of
from sebra.samples.table import IntArray

DEFAULT_K = 100


def bottom_and_top(ranks: Array, labels: Array, k: int | None = None) -> tuple[IntArray, IntArray]:
    """Indices of the k least and the k most spurious samples of each class.

    k is 100 unless given, and never more than half of a class, so the two sides are disjoint and
    hold the same number of samples of each class.
    """
    bottom, top = [], []
    for c, size in _sizes(labels, k).items():
        members = np.flatnonzero(labels == c)
        order = members[order_of(ranks[members])]
        top.append(order[:size])
        bottom.append(order[len(order) - size :])
    return _joined(bottom), _joined(top)


def performance_disparity(
    train_and_score: Callable[[IntArray], float],
    ranks: Array,
    labels: Array,
    k: int | None = None,
) -> dict[str, Any]:
    """PD = accuracy(trained on bottom k) - accuracy(trained on top k), in points.

    `train_and_score` gets indices into `ranks`, trains a fresh network on those samples alone and
    returns its test accuracy in percent. The result's `k` lists what was used in each class.
    """
    bottom_rows, top_rows = bottom_and_top(ranks, labels, k)
    bottom, top = float(train_and_score(bottom_rows)), float(train_and_score(top_rows))
    return {
        "pd": bottom - top,
        "bottom": bottom,
        "top": top,
        "k": list(_sizes(labels, k).values()),
    }


def _sizes(labels: Array, k: int | None) -> dict[int, int]:
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    wanted = DEFAULT_K if k is None else k
    present, counts = np.unique(labels, return_counts=True)
    return {int(c): min(wanted, int(n) // 2) for c, n in zip(present, counts, strict=True)}


def _joined(parts: list[Any]) -> IntArray:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
