from __future__ import annotations

import math

import pytest
import torch

from sebra_bench.baselines.losses.violation import conflict_weights, discovery_loss

EPS = 1e-6


def batch(classes=3, n=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.rand(n, generator=generator),
        torch.rand(n, generator=generator),
        torch.randint(classes, (n,), generator=generator),
    )


def means(confidence, assigned, y, c):
    """Weighted mean confidence of class `c` in both groups, sample by sample."""
    sums = [0.0, 0.0, 0.0, 0.0]
    for p, g, label in zip(confidence.tolist(), assigned.tolist(), y.tolist(), strict=True):
        if label == c:
            sums = [sums[0] + g * p, sums[1] + g, sums[2] + (1 - g) * p, sums[3] + 1 - g]
    return sums[0] / (sums[1] + EPS), sums[2] / (sums[3] + EPS)


def test_discovery_loss_equals_a_loop():
    confidence, assigned, y = batch()
    y[y == 1] = 2  # class 1 is absent and must not count
    total = 0.0
    for c in (0, 2):
        first, second = means(confidence, assigned, y, c)
        share = [g for g, label in zip(assigned.tolist(), y.tolist(), strict=True) if label == c]
        uneven = abs(sum(share) / len(share) - sum(1 - g for g in share) / len(share))
        total += -math.log(EPS + abs(first - second)) - 2.0 * math.log(EPS + 1 - uneven)
    got = discovery_loss(confidence, assigned, y, 3, balance=2.0)
    assert got.item() == pytest.approx(total / 2, rel=1e-4)


def test_weights_equal_a_loop():
    confidence, assigned, y = batch(seed=3)
    expected = []
    for g, label in zip(assigned.tolist(), y.tolist(), strict=True):
        first, second = means(confidence, assigned, y, label)
        expected.append(1 + (1 - g if second < first else g))
    assert conflict_weights(confidence, assigned, y, 3).tolist() == pytest.approx(expected)


def test_a_split_by_confidence_beats_any_other():
    confidence = torch.tensor([0.9, 0.9, 0.1, 0.1])
    y = torch.zeros(4, dtype=torch.long)
    right = discovery_loss(confidence, torch.tensor([1.0, 1.0, 0.0, 0.0]), y, 1)
    mixed = discovery_loss(confidence, torch.tensor([1.0, 0.0, 1.0, 0.0]), y, 1)
    lone = discovery_loss(confidence, torch.ones(4), y, 1)
    assert right < mixed
    assert right < lone
