"""The contrastive objective against loops, and what its choices do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sebra.debiasing.contrastive_loss import contrastive_loss


def naive(z: Tensor, pos: Tensor, neg: Tensor, tau: float, denominator: str) -> float:
    """The paper's formula, one exponential at a time."""

    def cosine(a: Tensor, b: Tensor) -> float:
        return sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) / (
            math.sqrt(sum(float(x) ** 2 for x in a)) * math.sqrt(sum(float(y) ** 2 for y in b))
        )

    tops = [[math.exp(cosine(z[i], p) / tau) for p in pos[i]] for i in range(len(z))]
    rest = [[math.exp(cosine(z[i], q) / tau) for q in neg[i]] for i in range(len(z))]
    whole = sum(map(sum, tops)) + sum(map(sum, rest))
    total, count = 0.0, 0
    for top, other in zip(tops, rest, strict=True):
        bottom = sum(top) + sum(other) if denominator == "anchor" else whole
        for value in top:
            total -= math.log(value / bottom)
            count += 1
    return total / count


@pytest.mark.parametrize("denominator", ["anchor", "batch"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 2)])
def test_equals_the_formula(denominator: str, m: int, n: int) -> None:
    generator = torch.Generator().manual_seed(m * 10 + n)
    z = torch.randn(5, 4, generator=generator)
    pos = torch.randn(5, m, 4, generator=generator)
    neg = torch.randn(5, n, 4, generator=generator)
    found = contrastive_loss(z, pos, neg, 0.3, denominator)
    assert float(found) == pytest.approx(naive(z, pos, neg, 0.3, denominator), rel=1e-5)


def test_falls_when_the_positive_comes_nearer_and_the_negative_goes_away() -> None:
    z = torch.tensor([[1.0, 0.0]])
    near, far = torch.tensor([[[0.9, 0.1]]]), torch.tensor([[[-1.0, 0.2]]])
    good = contrastive_loss(z, near, far, 0.1, "anchor")
    bad = contrastive_loss(z, far, near, 0.1, "anchor")
    assert float(good) < 0.01 < float(bad)
