"""The closed forms of the ranking objective (paper, section 3.2 and appendix A)."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from scipy.special import lambertw
from torch import Tensor

from sebra.errors import UsageError

Number = TypeVar("Number", float, Tensor)


def upweight(p: Number, beta: float) -> Number:
    """u* = p_y^(1/beta), the minimiser of u·CE + beta·(u ln u - u) (eq. 3)."""
    u: Number = p ** (1.0 / beta)
    return u


def p_critical_of(lam: float, beta: float) -> float:
    """Upper root of -p^(1/beta)·ln p = lambda: exp(beta·W0(-lambda/beta)) (appendix A.3).

    The function rises up to p = e^(-beta) and falls after it, so every lambda below its maximum
    beta/e has two roots; a sample counts as learned above the upper one.
    """
    if not 0.0 <= lam <= beta / math.e:
        raise UsageError(
            f"lambda = {lam:g} has no threshold: it must lie in [0, beta/e], "
            f"here [0, {beta / math.e:.4g}]"
        )
    found = float(lambertw(-lam / beta).real)
    # Where the branches meet, at -1/e, rounding may leave the range in which W is real.
    return math.exp(beta * (-1.0 if math.isnan(found) else found))


def is_learned(p: Tensor, p_critical: float) -> Tensor:
    """v* = 0 where p_y > p_critical (eq. 2).

    The exact maximiser over v is 0 below the lower root as well, where the weighted loss u·CE
    vanishes because u does. A sample the network is surely wrong about must not count as learned,
    so there v stays 1: a deliberate departure.
    """
    return p > p_critical


def weighted_loss(logits: Tensor, targets: Tensor, beta: float, use_u: bool = True) -> Tensor:
    """mean(u·CE) of a batch, u from the same forward pass and held constant (eq. 4)."""
    ce = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
    if not use_u:
        return ce.mean()
    with torch.no_grad():
        u = upweight((-ce).exp(), beta)
    return (u * ce).mean()
