"""Multinomial logistic regression for last layers: convex, so no rate and no seed to choose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_PASSES = 200
_GRADIENT = 1e-4  # of a mean loss; far below what changes a prediction
_PROGRESS = 1e-7
_SMALL = 50_000_000  # products of one pass


def logistic_regression(
    x: Tensor,
    y: Tensor,
    classes: int,
    penalty: float,
    weights: Tensor | None = None,
    centre: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """A head (d + 1 x classes, the last row its intercepts) over standardised features.

    It minimises the weighted mean of the cross-entropy plus `penalty / 2` times the squared
    distance of the weights from `centre` (zero where none is given); intercepts are free. `start`
    only saves time.
    """
    from scipy.optimize import minimize

    n, d = x.shape
    if n == 0:
        return torch.zeros(d + 1, classes, device=x.device, dtype=x.dtype)
    share = torch.ones(n, device=x.device) if weights is None else weights.to(x.device)
    share = (share / share.sum()).to(x.dtype)[:, None]
    hot = F.one_hot(y.to(x.device), classes).to(x.dtype)
    middle = torch.zeros(d, classes, device=x.device, dtype=x.dtype)
    if centre is not None:
        middle = centre[:-1].to(middle)

    def loss(flat: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, object]:
        head = torch.from_numpy(flat).to(x).view(d + 1, classes)
        away = head[:-1] - middle
        logits = logits_of(x, head)
        value = (share * (logits.logsumexp(1, keepdim=True) - (logits * hot).sum(1, True))).sum()
        error = share * (logits.softmax(1) - hot)
        # In this order: a product with a few columns is slow on a CPU.
        slope = torch.cat([(error.T @ x).T + penalty * away, error.sum(0, keepdim=True)])
        total = float(value) + penalty / 2 * float(away.square().sum())
        return total, slope.double().cpu().numpy().ravel()

    first = start if start is not None else centre
    if first is None:
        first = torch.zeros(d + 1, classes)
    with _few_threads(n * d * classes):
        found = minimize(
            loss,
            first.double().cpu().numpy().ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _PASSES, "gtol": _GRADIENT, "ftol": _PROGRESS, "maxcor": 10},
        )
    return torch.from_numpy(found.x).to(x).view(d + 1, classes)


@contextmanager
def _few_threads(work: int) -> Iterator[None]:
    """One thread for small products: waiting for others takes longer than the work."""
    before = torch.get_num_threads()
    if work < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def logits_of(x: Tensor, head: Tensor) -> Tensor:
    """What a head says of samples."""
    return F.linear(x, head[:-1].T.contiguous(), head[-1])
