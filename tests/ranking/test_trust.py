"""Trust needs no attribute, and yet tells a good order from a bad one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ranking.toys import task_of
from sebra.measuring.ranks import somers_d
from sebra.ranking import trust
from sebra.ranking.ranking import ranks_within_classes


def two_cues(n: int = 1200, seed: int = 0, share: float = 0.1, extra: int = 0):
    """Two classes; a loud and a less loud cue that follow the label but for `share`.

    The class itself (the product of two signs) is more than a straight line can tell.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    follows = rng.random((n, 2)) >= share
    cues = np.where(follows, y[:, None], 1 - y[:, None])
    x = rng.normal(size=(n, 8)).astype(np.float32)
    x[:, :2] = 6 * (cues - 0.5) * [1.0, 0.6] + rng.normal(size=(n, 2)) * 0.5
    x[:, 2] = rng.choice([-1, 1], n)
    x[:, 3] = x[:, 2] * (2 * y - 1)
    x = np.concatenate([x, rng.normal(size=(n, extra)).astype(np.float32)], 1)
    return task_of(x, y, seed), follows


def ranks(score: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Ranks by falling score."""
    return ranks_within_classes(np.zeros(len(labels), dtype=np.int64), score, labels)


def value(task, score: np.ndarray) -> float:
    found = trust.trust_in(trust.witness_of(task), ranks(score, task.targets.numpy()))
    assert found is not None
    return found.value


def test_a_right_order_is_trusted_and_chance_and_the_reverse_are_not():
    task, follows = two_cues()
    right = 2.0 * follows[:, 0] + follows[:, 1]
    assert value(task, right) > 0.6
    assert value(task, np.random.default_rng(1).random(len(task))) < 0.2
    assert value(task, -right) == 0.0


def test_an_order_that_misses_one_of_two_shortcuts_is_trusted_less():
    task, follows = two_cues()
    both = value(task, 2.0 * follows[:, 0] + follows[:, 1])
    one = value(task, follows[:, 0].astype(float))
    assert both > one + 0.15
    assert one > 0.3


def test_nothing_is_trusted_where_the_classes_have_no_shortcut():
    task, follows = two_cues(share=0.5)
    assert value(task, 2.0 * follows[:, 0] + follows[:, 1]) < 0.2


def test_agreement_is_somers_d_given_the_pattern_class_by_class():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 300)
    pattern = rng.integers(0, 4, 300)
    place = rng.permutation(300) / 300
    by_hand = [somers_d(place[labels == c], pattern[labels == c]) for c in range(3)]
    assert trust._somers_d(place, pattern, labels) == pytest.approx(np.mean(by_hand))


def test_large_tasks_are_heard_in_part(monkeypatch):
    monkeypatch.setattr(trust, "MOST_ROWS", 500)
    monkeypatch.setattr(trust, "MOST_PICTURES", 200)
    task, follows = two_cues(n=3000)
    witness = trust.witness_of(task)
    assert witness is not None
    assert len(witness.rows) == 500
    assert value(task, 2.0 * follows[:, 0] + follows[:, 1]) > 0.6


def test_too_little_data_gives_no_trust():
    task, _ = two_cues(n=20)
    assert trust.witness_of(task) is None
    assert trust.trust_in(None, np.arange(20)) is None


def test_no_figure_counts_against_a_ranking():
    model = json.loads(trust.COEFFICIENTS.read_text(encoding="utf-8"))
    assert model["weight"] > 0
    everything = dict.fromkeys(trust.FIGURES, 1.0)
    assert 0.5 < trust.combined(everything) <= 1.0
    for name in trust.FIGURES:
        assert trust.combined({**everything, name: 0.0}) == 0.0
        low, high = ({**everything, name: v} for v in (0.2, 0.4))
        assert 0 < trust.combined(low) < trust.combined(high)


def test_a_shortcut_that_halves_of_the_data_read_otherwise_is_trusted_less():
    """The same right order of the same cues, beside much that says nothing."""
    found = {}
    for extra in (0, 400):
        task, follows = two_cues(n=600, extra=extra)
        witness = trust.witness_of(task)
        assert witness is not None
        rank = ranks(2.0 * follows[:, 0] + follows[:, 1], task.targets.numpy())
        found[extra] = trust.figures_of(witness, rank)
    sharp, dull = found[0], found[400]
    assert sharp["reliability"] > 0.9 > dull["reliability"] + 0.1
    assert trust.combined(dull) < trust.combined({**dull, "reliability": sharp["reliability"]})


def test_reliability_is_that_of_one_half_in_the_eyes_of_the_other():
    """By hand: a head that always says the same is reliable, one that says anything is not."""
    labels = np.arange(400) % 2
    rng = np.random.default_rng(2)
    same = rng.normal(size=(400, 2))

    def fixed(wanted, weights, penalty):
        assert 0 < (weights > 0).sum() < len(labels)  # a half teaches
        return same

    def anything(wanted, weights, penalty):
        return rng.normal(size=(400, 2))

    ones = np.ones(400)
    assert trust._between_halves(fixed, same, ones, labels) == 1.0
    assert trust._between_halves(anything, same, ones, labels) < 0.1


def test_where_too_few_break_a_shortcut_from_easy_to_hard_is_worth_something():
    """As at 1:100 between classes: nothing is certain, and yet chance is not as good."""
    rng = np.random.default_rng(4)
    y = np.r_[np.zeros(1000, dtype=np.int64), np.ones(20, dtype=np.int64)]
    follows = rng.random(1020) > 0.1
    x = rng.normal(size=(1020, 6)).astype(np.float32)
    x[:, 0] += 5 * (np.where(follows, y, 1 - y) - 0.5)
    task = task_of(x, y)
    assert value(task, follows + 0.01 * rng.random(1020)) > 0.1
    assert value(task, rng.random(1020)) < 0.1
