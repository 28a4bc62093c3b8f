"""Ranking quality against brute force and against the figures known for UrbanCars' groups."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sebra.measuring.ranks import (
    column_d,
    plain_tau_b,
    published_score,
    quality_of,
    size_matched_chunks,
    size_matched_tau_b,
    somers_d,
)

SIZES = (3610, 190, 190, 10)  # one class of UrbanCars


@pytest.fixture
def urbancars_groups():
    return np.repeat(np.arange(4), SIZES)


def naive_somers_d(score, groups):
    surplus = pairs = 0
    for i in range(len(groups)):
        for j in range(len(groups)):
            if groups[i] < groups[j]:
                pairs += 1
                surplus += int(score[i] < score[j]) - int(score[i] > score[j])
    return surplus / pairs if pairs else float("nan")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 12), st.integers(0, 7)), min_size=1, max_size=40))
def test_somers_d_equals_counting_every_pair(rows):
    score = np.array([r[0] for r in rows]) / 4
    groups = np.array([r[1] for r in rows])
    expected = naive_somers_d(score, groups)
    assert somers_d(score, groups) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_somers_d_of_a_perfect_a_reversed_and_a_constant_order(urbancars_groups):
    n = len(urbancars_groups)
    assert somers_d(np.arange(n), urbancars_groups) == 1
    assert somers_d(-np.arange(n), urbancars_groups) == -1
    assert somers_d(np.zeros(n), urbancars_groups) == 0


def test_a_random_order_has_somers_d_and_tau_b_near_zero(urbancars_groups):
    rng = np.random.default_rng(1)
    orders = [rng.permutation(len(urbancars_groups)) for _ in range(30)]
    for measure in (somers_d, size_matched_tau_b):
        assert abs(np.mean([measure(o, urbancars_groups) for o in orders])) < 0.02


def test_ranking_the_background_alone_gives_somers_d_0_525(urbancars_groups):
    assert somers_d(urbancars_groups // 2, urbancars_groups) == pytest.approx(0.525, abs=5e-4)


def test_a_perfect_order_has_plain_tau_b_0_4255_but_scores_one_here(urbancars_groups):
    order = np.arange(len(urbancars_groups))
    assert plain_tau_b(order, urbancars_groups) == pytest.approx(0.4255, abs=5e-5)
    assert somers_d(order, urbancars_groups) == 1
    assert size_matched_tau_b(order, urbancars_groups) == pytest.approx(1)
    assert published_score(order, urbancars_groups) == pytest.approx(1)


def test_published_score_of_a_random_order_and_of_the_background_alone(urbancars_groups):
    rng = np.random.default_rng(2)
    n = len(urbancars_groups)
    random = [published_score(rng.permutation(n), urbancars_groups) for _ in range(30)]
    background = [
        published_score(urbancars_groups // 2 + 0.5 * rng.random(n), urbancars_groups)
        for _ in range(10)
    ]
    assert np.mean(random) == pytest.approx(0.23, abs=0.06)
    assert np.mean(background) == pytest.approx(0.89, abs=0.005)


def test_chunks_have_the_sizes_of_the_groups_present():
    groups = np.array([3, 0, 0, 3, 5, 0])
    score = np.array([0, 1, 2, 3, 4, 5])
    assert size_matched_chunks(score, groups).tolist() == [0, 0, 0, 3, 3, 5]


def test_tied_scores_do_not_borrow_the_order_of_the_files(urbancars_groups):
    constant = np.zeros(len(urbancars_groups))
    assert abs(size_matched_tau_b(constant, urbancars_groups)) < 0.1


def test_figures_do_not_depend_on_the_order_of_rows(urbancars_groups):
    rng = np.random.default_rng(3)
    score = urbancars_groups + rng.normal(0, 1, len(urbancars_groups))
    shuffle = rng.permutation(len(score))
    for measure in (somers_d, size_matched_tau_b, published_score):
        there = measure(score[shuffle], urbancars_groups[shuffle])
        assert there == pytest.approx(measure(score, urbancars_groups))


def test_a_million_samples_in_many_groups_take_seconds():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 1024, 1_000_000)
    began = time.perf_counter()
    value = somers_d(groups + rng.normal(0, 1, len(groups)), groups)
    assert time.perf_counter() - began < 20
    assert 0.99 < value < 1


def test_column_d_is_class_wise_and_looks_at_one_attribute():
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    aligned = np.array([1, 1, 0, 0, 1, 1, 0, 0, 1, 1], dtype=bool)
    # Class 0 is separated, class 1 is not at all, class 2 has nothing to separate; scores of
    # different classes are not comparable.
    column = np.array([0.9, 0.8, 0.7, 0.6, 0.1, 0.4, 0.4, 0.1, 0.0, 1.0])
    assert column_d(column, aligned, labels) == pytest.approx(0.5)
    assert column_d(column, np.ones(10, dtype=bool), labels) is None


def test_the_quality_is_the_mean_of_the_classes_that_have_two_groups(make_samples):
    samples = make_samples(
        [
            (2, "train", "a", "x"),
            (2, "train", "a", "y"),
            (2, "train", "b", "x"),
            (2, "train", "b", "y"),
            (2, "train", "c", "x"),
        ],
        ["a", "b", "c"],
        {"colour": ["x", "y"]},
    )
    ranks = np.array([0, 1, 2, 3, 3, 2, 1, 0, 0, 1])
    found = quality_of(samples, samples.rows("train"), ranks, {"stage_1": -ranks})
    assert found["somers_d"] == pytest.approx(0)
    assert set(found["per_class"]) == {"a", "b"}
    assert found["per_class"]["a"]["somers_d"] == 1
    assert found["per_class"]["b"]["tau_b"] == pytest.approx(-1)
    assert found["per_class"]["b"]["plain_tau_b"] == pytest.approx(-4 / (4 * 6) ** 0.5)
    assert found["stages"] == [{"name": "stage_1", "given": {"colour": pytest.approx(0)}}]
    json.dumps(found, allow_nan=False)


def test_the_quality_without_two_groups_anywhere_is_none(make_samples):
    samples = make_samples([(3, "train", "a", "x")], ["a"], {"colour": ["x", "y"]})
    found = quality_of(samples, samples.rows("train"), np.arange(3))
    assert found["somers_d"] is found["tau_b"] is found["published"] is None
    assert found["per_class"] == {}


def test_rows_with_a_missing_attribute_are_left_out(make_samples):
    samples = make_samples(
        [
            (3, "train", "a", "x", "u"),
            (2, "train", "a", "y", "u"),
            (4, "train", "a", None, "u"),
            (3, "train", "a", "x", None),
            (5, "test", "a", "y", "v"),
        ],
        ["a", "b"],
        {"first": ["x", "y"], "second": ["u", "v"]},
    )
    # The missing ones come first in the order: taken as conflicting they would spoil it.
    ranks = np.array([7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6])
    rows = samples.rows("train")
    found = quality_of(samples, rows, ranks, {"stage_1": -ranks})
    assert found is not None
    assert found["somers_d"] == 1
    assert found["stages"][0]["given"] == {"first": 1.0, "second": None}
    assert quality_of(samples.with_attributes([]), rows, ranks) is None
