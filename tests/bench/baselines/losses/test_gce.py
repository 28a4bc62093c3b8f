from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from sebra_bench.baselines.losses.gce import generalised_cross_entropy


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
def test_equals_a_loop(q):
    torch.manual_seed(0)
    logits, y = 3 * torch.randn(7, 4), torch.randint(4, (7,))
    expected = []
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        p = math.exp(row[label]) / sum(math.exp(v) for v in row)
        expected.append((1 - p**q) / q)
    got = generalised_cross_entropy(logits, y, q)
    assert got.tolist() == pytest.approx(expected, rel=1e-4)


def test_gradient_is_that_of_cross_entropy_times_p_to_the_q():
    torch.manual_seed(1)
    logits, y = torch.randn(9, 3, requires_grad=True), torch.randint(3, (9,))
    (ours,) = torch.autograd.grad(generalised_cross_entropy(logits, y, 0.7).sum(), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), logits)
    p = logits.detach().softmax(1).gather(1, y[:, None])
    assert torch.allclose(ours, p**0.7 * plain, atol=1e-6)


def test_finite_for_a_hopeless_sample():
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = generalised_cross_entropy(logits, torch.tensor([1]), 0.7)
    loss.sum().backward()
    assert loss.item() == pytest.approx(1 / 0.7)
    assert torch.isfinite(logits.grad).all()
