"""Controls: a ranker that finds marks is trusted, one that goes by chance or claims much is not."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.stats import kurtosis

from ranking.toys import noisy, task_of
from sebra.ranking.controls import Controls, _Bench, run_controls
from sebra.ranking.ranking import Ranker, RankResult


class Chance(Ranker):
    """An order by chance."""

    def rank(self, task, session, monitor) -> RankResult:
        score = np.random.default_rng(0).random(len(task))
        return RankResult(np.zeros(len(task), dtype=np.int64), score)


class Seer(Ranker):
    """Sees every class by a linear model; names a stage whatever there is."""

    names_patterns = True

    def rank(self, task, session, monitor) -> RankResult:
        x = task.batch(torch.arange(len(task))).double().numpy()
        x = np.c_[(x - x.mean(0)) / x.std(0), np.ones(len(x))]
        labels = task.targets.numpy()
        hot = 2.0 * np.eye(task.classes)[labels] - 1
        seen = (x @ np.linalg.lstsq(x, hot, rcond=None)[0])[np.arange(len(x)), labels]
        return RankResult(np.zeros(len(x), dtype=np.int64), seen, stages={"stage_1": seen})


class Silent(Seer):
    """Names nothing."""

    def rank(self, task, session, monitor) -> RankResult:
        found = super().rank(task, session, monitor)
        return RankResult(found.bucket, found.score)


def hard(n: int = 800, d: int = 20):
    """Two classes that can hardly be told apart: a mark is the easiest thing to see."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, 0] += 0.5 * y
    return task_of(x, y)


def test_a_mark_is_found_by_who_looks_and_not_by_chance():
    task = hard()
    seen = run_controls(task, lambda: Seer(None), 1e9, most=4)
    chance = run_controls(task, lambda: Chance(None), 1e9, most=4)
    assert seen.found == 4
    assert chance.found == 0
    assert seen.trust > 0.8 > 0.3 > chance.trust


@pytest.mark.parametrize(("n", "d"), [(4000, 20), (400, 20), (400, 600)])
def test_the_mark_is_as_visible_as_it_says(n, d):
    """A linear model tells it of new samples in 99 of 100 cases, with more columns than samples."""
    bench = _Bench(hard(n, d))
    shift = bench._directions(bench.shown, 3, np.random.default_rng(3))[0]
    carries = np.random.default_rng(4).permutation(n) % 2
    x = (bench.shown + torch.from_numpy(carries)[:, None] * shift).numpy() / d**0.5
    x, y = x - x.mean(0), carries - carries.mean()
    fold, right = np.arange(n) % 10, []
    for k in range(10):
        teach = fold != k
        gram = x[teach].T @ x[teach] + teach.sum() * np.eye(d) / d
        said = x[~teach] @ np.linalg.solve(gram, x[teach].T @ y[teach])
        right.append(np.sign(said) == np.sign(y[~teach]))
    assert np.concatenate(right).mean() == pytest.approx(0.99, abs=0.012)


def test_data_that_never_vary_can_be_marked():
    assert (
        not _Bench(task_of(np.ones((60, 4), np.float32), np.arange(60) % 2))
        ._directions(torch.zeros(60, 4), 1, np.random.default_rng(0))
        .any()
    )


class Watcher(Silent):
    """Keeps what it is shown."""

    seen: ClassVar[list[torch.Tensor]] = []

    def rank(self, task, session, monitor) -> RankResult:
        self.seen.append(task.batch(torch.arange(len(task))))
        return super().rank(task, session, monitor)


def test_of_two_classes_one_has_the_mark_and_the_other_has_not():
    Watcher.seen.clear()
    task = hard(400)
    x, y = task.batch(torch.arange(400)), task.targets.numpy()
    run_controls(task, lambda: Watcher(None), 1e9, most=2)
    one, each = ((np.round((shown - x).numpy(), 3) != 0).any(1) for shown in Watcher.seen)
    assert [round(100 * one[y == c].mean()) for c in range(2)] == [95, 0]
    assert sorted(round(100 * each[y == c].mean()) for c in range(2)) == [5, 95]


def test_marks_are_on_95_percent_of_one_class_and_then_of_each():
    Watcher.seen.clear()
    task = noisy(n=600, classes=3)
    x, y = task.batch(torch.arange(600)), task.targets.numpy()
    found = run_controls(task, lambda: Watcher(None), 1e9, most=2)
    assert (len(found.one), len(found.each)) == (1, 1)
    one, each = (np.round((shown - x).numpy(), 3) for shown in Watcher.seen)
    carries = (one != 0).any(1)
    assert [round(100 * carries[y == c].mean()) for c in range(3)] == [95, 0, 0]
    assert (each != 0).any(1).all()
    for c in range(3):
        marks, counts = np.unique(each[y == c], axis=0, return_counts=True)
        assert len(marks) == 3
        assert counts.max() == 190


def test_claims_without_a_pattern_cost_trust():
    task = noisy(n=300)
    loud = run_controls(task, lambda: Seer(None), 1e9, True, most=3)
    assert loud.claims == (True, True, True)
    assert loud.trust == 0
    silent = run_controls(task, lambda: Silent(None), 1e9, True, most=3)
    assert silent.claims == (False, False, False)
    assert silent.found == 0


def test_without_time_one_trial_of_each_is_made():
    task = noisy(n=300)
    found = run_controls(task, lambda: Seer(None), 0.0, True)
    assert (len(found.areas), len(found.claims)) == (1, 1)


def test_too_few_samples_say_nothing():
    assert run_controls(noisy(n=30), lambda: Seer(None), 1e9) is None


def test_what_they_showed_is_said_in_a_sentence_each():
    said = Controls((0.95, 0.99, 0.7), (False, True)).sentences()
    assert said == [
        "a plain mark on 95% of one class would have been found in 2 of 3 trials",
        "in 2 trials without any pattern one was claimed",
    ]
    assert Controls((0.5,), ()).sentences()[0].endswith("in 0 of 1 trial")
    both = Controls((0.5, 0.95), (), (0.95,))
    assert both.found == 2
    assert both.sentences()[0].endswith(
        "1 of 2 trials, and plain marks on 95% of each class in 1 of 1 trial"
    )


def test_the_task_is_left_as_it_was():
    task = hard(200)
    x, y = task.batch(torch.arange(200)).clone(), task.targets.clone()
    run_controls(task, lambda: Seer(None), 1e9, True, most=2)
    assert torch.equal(task.batch(torch.arange(200)), x)
    assert torch.equal(task.targets, y)


def test_a_pattern_of_the_data_is_not_in_its_clouds():
    """Two clouds a class become one, with the same mean and spread."""
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 2
    x = rng.normal(size=(4000, 6)).astype(np.float32)
    x[:, 0] += 8 * np.where(rng.random(4000) < 0.95, y, 1 - y)
    bench = _Bench(task_of(x, y))
    centre, factor = bench._clouds
    drawn = centre + torch.randn(4000, len(factor), generator=torch.manual_seed(0)) @ factor
    for c in (0, 1):
        own, new = x[y == c, 0], drawn[torch.from_numpy(y == c), 0].numpy()
        assert new.mean() == pytest.approx(own.mean(), abs=0.15)
        assert kurtosis(own) > 3 > 0.5 > abs(kurtosis(new))
