"""Multinomial logistic regression for a last layer: convex, so no rate and no seed to choose."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS = 1000
_TOLERANCE = 1e-5


def logistic_regression(
    x: Tensor, y: Tensor, classes: int, c: float, l1: bool = True
) -> tuple[Tensor, Tensor]:
    """Weights (classes x d) and intercepts that minimise `mean CE + penalty / (c * n)`.

    The penalty is the sum of the absolute weights, or half the sum of their squares; intercepts
    are free. `x` should be standardised. Accelerated proximal gradient with restarts (Beck and
    Teboulle 2009; O'Donoghue and Candès 2015), in double precision on the CPU.
    """
    x = F.pad(x.detach().double().cpu(), (0, 1), value=1.0)
    hot = F.one_hot(y.cpu(), classes).double()
    strength = 1.0 / (c * len(x))
    # The softmax Hessian is at most 1/2, so this step never overshoots.
    curvature = float(torch.linalg.matrix_norm(x, 2)) ** 2 / (2 * len(x))
    rate = 1.0 / (curvature + (0.0 if l1 else strength))
    free = torch.ones(1, x.shape[1], dtype=torch.double)
    free[0, -1] = 0.0
    w = torch.zeros(classes, x.shape[1], dtype=torch.double)
    ahead, t = w, 1.0
    for _ in range(_STEPS):
        gradient = ((ahead @ x.T).softmax(0) - hot.T) @ x / len(x)
        if l1:
            moved = ahead - rate * gradient
            fresh = moved.sign() * (moved.abs() - rate * strength * free).clamp_min(0.0)
        else:
            fresh = ahead - rate * (gradient + strength * free * ahead)
        change = fresh - w
        if float(change.abs().max()) < _TOLERANCE * max(1.0, float(fresh.abs().max())):
            w = fresh
            break
        if float(((ahead - fresh) * change).sum()) > 0:
            ahead, t = fresh, 1.0
        else:
            following = (1 + (1 + 4 * t * t) ** 0.5) / 2
            ahead, t = fresh + (t - 1) / following * change, following
        w = fresh
    return w[:, :-1].float(), w[:, -1].float()
