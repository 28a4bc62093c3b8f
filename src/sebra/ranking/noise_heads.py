"""Logistic heads over features, each of which judges samples that it was trained without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.engine.logistic import logistic_regression, logits_of

Array = npt.NDArray[Any]
Reader = Callable[[Tensor], Tensor]  # places -> features, n x d floats

FOLDS = 5
STRENGTH = 1.0  # best calibrated on pictures; how sure a head really is, is fitted afterwards
MOST_TO_TRAIN = 40_000  # samples that a head sees; it judges all the others
_BLOCK = 8192


def held_out_logits(read: Reader, y: Tensor, classes: int, seed: int, order: Array) -> Array:
    """The logits of every sample from a head that was trained without it.

    order: of the samples, which the seed then shuffles into folds.
    """
    shuffle = order[np.random.default_rng(seed).permutation(len(y))]
    fold = torch.from_numpy(stratified_folds(y.cpu().numpy(), FOLDS, shuffle)).to(y.device)
    # In the order they are stored in: a memory map is read forwards.
    rows = torch.from_numpy(np.sort(shuffle[:MOST_TO_TRAIN])).to(y.device)
    x = torch.cat([read(part) for part in torch.split(rows, _BLOCK)])
    std, mean = torch.std_mean(x, dim=0, correction=0)
    # Divided by the root of the dimension, so that one strength suits every d.
    scale = 1 / (std.clamp_min(1e-6) * x.shape[1] ** 0.5)
    x = (x - mean) * scale
    heads = []
    for k in range(FOLDS):
        use = fold[rows] != k
        penalty = 1 / (STRENGTH * max(1, int(use.sum())))
        heads.append(logistic_regression(x[use], y[rows][use], classes, penalty))
    out = np.empty((len(y), classes), dtype=np.float32)
    for part in torch.split(torch.arange(len(y), device=y.device), _BLOCK):
        features = (read(part) - mean) * scale
        for k, head in enumerate(heads):
            mine = fold[part] == k
            out[part[mine].cpu().numpy()] = logits_of(features[mine], head).cpu().numpy()
    return out


def stratified_folds(labels: Array, folds: int, shuffle: Array) -> npt.NDArray[np.int64]:
    """A fold per sample, 0 to `folds` - 1, each class spread evenly over the folds.

    shuffle: a permutation of the samples; it says who of a class falls into which fold, and which
    class comes first, whatever they are called.
    """
    _, first, codes = np.unique(labels[shuffle], return_index=True, return_inverse=True)
    order = shuffle[np.argsort(first[codes], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold
