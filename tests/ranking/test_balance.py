"""Weights that neutralise shortcuts, against the sums they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sebra.ranking.balance import contrast_weights, neutral_weights


def _world(seed: int, n: int, stages: int, classes: int):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    follows = rng.random((n, stages)) < 0.8
    return follows, labels.astype(np.int64), rng.random(n) + 0.1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(20, 200), st.integers(1, 3), st.integers(2, 4))
def test_every_shortcut_is_followed_by_half_of_each_class(seed, n, stages, classes):
    follows, labels, trust = _world(seed, n, stages, classes)
    weights = neutral_weights(follows, labels, trust)
    for c in range(classes):
        mass = weights[labels == c]
        assert mass.sum() == pytest.approx(1)
        codes = set(map(tuple, follows[labels == c].tolist()))
        if not any(tuple(not v for v in code) in codes for code in codes):
            continue  # no pattern of this class has its opposite: it is taken as it is
        for k in range(stages):
            assert mass[follows[labels == c, k]].sum() == pytest.approx(0.5)


def test_no_shortcut_leaves_classes_even_and_trust_counted():
    labels = np.array([0, 0, 0, 1])
    weights = neutral_weights(np.zeros((4, 0), bool), labels, np.array([1.0, 1.0, 0.0, 0.5]))
    assert weights.tolist() == pytest.approx([0.5, 0.5, 0.0, 1.0])


def test_urbancars_counts_keep_the_doubly_conflicting_light():
    """3610 / 190 / 190 / 10: equal cells would give ten samples a quarter of the mass."""
    sizes = {(1, 1): 3610, (1, 0): 190, (0, 1): 190, (0, 0): 10}
    follows = np.array([p for p, size in sizes.items() for _ in range(size)], bool)
    labels = np.zeros(len(follows), np.int64)
    weights = neutral_weights(follows, labels, np.ones(len(follows)))
    both = ~follows[:, 0] & ~follows[:, 1]
    assert weights[both].sum() == pytest.approx(0.0475, abs=0.001)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(20, 200), st.integers(0, 2))
def test_sides_of_a_split_have_equal_mass_within_class_and_pattern(seed, n, stages):
    before, labels, trust = _world(seed, n, stages, 2)
    split = np.random.default_rng(seed + 1).random(n) < 0.9
    weights = contrast_weights(before, split, labels, trust)
    code = labels * 8 + (before * (1 << np.arange(stages))).sum(1)
    for cell in np.unique(code):
        here = code == cell
        assert weights[here & split].sum() == pytest.approx(weights[here & ~split].sum())
