"""Cuts samples into folds for held-out predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def stratified_folds(labels: Array, folds: int, shuffle: Array) -> npt.NDArray[np.int64]:
    """A fold per sample, 0 to `folds` - 1, each class spread evenly over the folds.

    shuffle: a permutation of the samples; it says who of a class falls into which fold.
    """
    order = shuffle[np.argsort(labels[shuffle], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold
