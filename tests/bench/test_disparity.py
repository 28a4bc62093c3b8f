"""Performance Disparity picks the right samples and subtracts the right way round."""

from __future__ import annotations

import numpy as np
import pytest

from sebra_bench.disparity import bottom_and_top, performance_disparity


def test_bottom_is_the_least_spurious_end_of_each_class():
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    ranks = np.array([3, 0, 2, 1, 1, 2, 0, 3])
    bottom, top = bottom_and_top(ranks, labels, k=1)
    assert sorted(bottom) == [0, 7]
    assert sorted(top) == [1, 6]


def test_k_is_a_hundred_or_half_the_class_and_the_sides_are_disjoint():
    labels = np.repeat([0, 1, 2], [500, 31, 1])
    ranks = np.random.default_rng(0).permutation(len(labels))
    bottom, top = bottom_and_top(ranks, labels)
    for side in (bottom, top):
        assert np.bincount(labels[side], minlength=3).tolist() == [100, 15, 0]
    assert not set(bottom) & set(top)
    for c in (0, 1):
        assert ranks[bottom[labels[bottom] == c]].min() > ranks[top[labels[top] == c]].max()


def test_disparity_is_bottom_minus_top():
    ranks, labels = np.arange(20), np.zeros(20, dtype=int)
    found = performance_disparity(lambda rows: float(rows.mean()), ranks, labels, k=4)
    assert found == {"pd": 16.0, "bottom": 17.5, "top": 1.5, "k": [4]}


def test_a_k_below_one_is_refused():
    with pytest.raises(ValueError, match="k must be at least 1"):
        bottom_and_top(np.arange(4), np.zeros(4), k=0)
