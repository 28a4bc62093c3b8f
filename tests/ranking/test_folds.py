"""Folds hold the same share of every class, whatever the classes' sizes."""

from __future__ import annotations

import numpy as np
import pytest

from sebra.ranking.noise_heads import stratified_folds


@pytest.mark.parametrize("folds", [2, 3, 10])
def test_every_class_and_the_whole_are_spread_evenly(folds):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([0, 1, 4], [7, 120, 33]))
    fold = stratified_folds(labels, folds, rng.permutation(len(labels)))
    for members in (fold, *(fold[labels == c] for c in (0, 1, 4))):
        sizes = np.bincount(members, minlength=folds)
        assert len(sizes) == folds
        assert sizes.max() - sizes.min() <= 1


def test_the_shuffle_decides_who_falls_where():
    labels = np.repeat([0, 1], 20)
    shuffles = [np.random.default_rng(seed).permutation(40) for seed in range(2)]
    first, second = (stratified_folds(labels, 5, shuffle) for shuffle in shuffles)
    assert (first != second).any()
    np.testing.assert_array_equal(first, stratified_folds(labels, 5, shuffles[0]))


def test_of_a_class_they_follow_the_shuffle_in_turn():
    shuffle = np.array([3, 0, 5, 1, 4, 2])
    fold = stratified_folds(np.array([0, 1, 0, 1, 0, 1]), 3, shuffle)
    assert fold[[0, 4, 2]].tolist() == [0, 1, 2]
    assert fold[[3, 5, 1]].tolist() == [0, 1, 2]
