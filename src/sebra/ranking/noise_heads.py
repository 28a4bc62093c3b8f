"""Logistic heads over features, each of which judges samples that it was trained without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.ranking.folds import stratified_folds

Array = npt.NDArray[Any]
Reader = Callable[[Tensor], Tensor]  # places -> features, n x d floats

FOLDS = 10
STRENGTHS = (0.3, 1.0)  # of the heads: a sample must look wrong to a stiff and to a supple one
MOST_TO_TRAIN = 40_000  # samples that a head sees; it judges all the others
_STEPS = 80
_TOLERANCE = 1e-4
_LOGITS = 30_000_000  # numbers held at once while heads train
_BLOCK = 8192


def held_out_logits(read: Reader, y: Tensor, classes: int, seed: int) -> list[Array]:
    """Per strength, the logits of every sample from a head that was trained without it."""
    shuffle = np.random.default_rng(seed).permutation(len(y))
    fold = torch.from_numpy(stratified_folds(y.cpu().numpy(), FOLDS, shuffle)).to(y.device)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    # In the order they are stored in: a memory map is read forwards.
    rows, rest = order[:MOST_TO_TRAIN].sort().values, order[MOST_TO_TRAIN:].sort().values
    x = torch.cat([read(part) for part in _parts(rows, _BLOCK)])
    std, mean = torch.std_mean(x, dim=0, correction=0)
    # Divided by the root of the dimension, so that one strength suits every d.
    scale = 1 / (std.clamp_min(1e-6) * x.shape[1] ** 0.5)
    x = (x - mean) * scale
    heads = [_trained(x, y[rows], fold[rows], classes, c) for c in STRENGTHS]
    out = [np.empty((len(y), classes), dtype=np.float32) for _ in heads]

    def judge(part: Tensor, features: Tensor) -> None:
        where = part.cpu().numpy()
        for weights, logits in zip(heads, out, strict=True):
            every = torch.einsum("nd,dkc->nkc", features, weights[:-1]) + weights[-1]
            own = every[torch.arange(len(part), device=part.device), fold[part]]
            logits[where] = own.cpu().numpy()

    block = max(1, min(_BLOCK, _LOGITS // (FOLDS * classes)))
    for at in _parts(torch.arange(len(rows), device=y.device), block):
        judge(rows[at], x[at])
    for part in _parts(rest, block):
        judge(part, (read(part) - mean) * scale)
    return out


def _trained(x: Tensor, y: Tensor, fold: Tensor, classes: int, c: float) -> Tensor:
    """A head per fold, trained on the others: d + 1 x folds x classes."""
    # Heads of several folds share every pass over the features, as far as memory allows.
    together = max(1, min(FOLDS, _LOGITS // (len(x) * classes)))
    parts = []
    for numbers in _parts(torch.arange(FOLDS, device=x.device), together):
        parts.append(_heads(x, y, fold[:, None] != numbers[None, :], classes, c))
    return torch.cat(parts, dim=1)


def _parts(x: Tensor, size: int) -> list[Tensor]:
    return [x[start : start + size] for start in range(0, len(x), size)]


def _heads(x: Tensor, y: Tensor, use: Tensor, classes: int, c: float) -> Tensor:
    """Multinomial logistic regressions, one per column of `use`, each on the rows it marks.

    Each minimises `mean CE + |w|² / (2 c n)`. Returns d + 1 x heads x classes; the last row holds
    the intercepts.
    """
    n, heads = use.shape
    weights = torch.zeros(x.shape[1] + 1, heads, classes, device=x.device, requires_grad=True)
    share = use.float() / use.sum(0)
    strength = 1 / (2 * c * use.sum(0).float())
    labels = y[:, None].expand(n, heads).reshape(-1)
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=_STEPS,
        tolerance_grad=_TOLERANCE,
        tolerance_change=1e-9,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = (x @ weights[:-1].flatten(1)).view(n, heads, classes) + weights[-1]
        each = F.cross_entropy(logits.flatten(0, 1), labels, reduction="none").view(n, heads)
        penalty = (weights[:-1].square().sum((0, 2)) * strength).sum()
        value = (each * share).sum() + penalty
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()
