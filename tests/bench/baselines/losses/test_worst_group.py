from __future__ import annotations

import math

import pytest
import torch

from sebra_bench.baselines.losses.worst_group import chase_worst, group_losses


def test_group_losses_equal_a_loop():
    torch.manual_seed(0)
    losses, groups = torch.rand(20), torch.randint(4, (20,))
    groups[groups == 2] = 3  # an absent group
    expected = []
    for g in range(4):
        of_group = [v for v, k in zip(losses.tolist(), groups.tolist(), strict=True) if k == g]
        expected.append(sum(of_group) / len(of_group) if of_group else 0.0)
    assert group_losses(losses, groups, 4).tolist() == pytest.approx(expected)


def test_weights_follow_the_exponentiated_gradient():
    weights, losses = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([2.0, 0.0, 1.0])
    raw = [w * math.exp(0.5 * v) for w, v in zip([0.2, 0.3, 0.5], [2.0, 0.0, 1.0], strict=True)]
    same = weights
    chase_worst(weights, losses, eta=0.5)
    assert weights is same
    assert weights.tolist() == pytest.approx([v / sum(raw) for v in raw])
