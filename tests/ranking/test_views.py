"""Patterns in narrow views: found where a mark is all there is, not where a cloud thins out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ranking.toys import task_of
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.engine.views import View
from sebra.ranking.evidence import excess
from sebra.ranking.patterns import PatternModel
from sebra.ranking.peel import PeelConfig, PeelRanker
from sebra.ranking.ranking import Blind


def tail(before: float, between: float) -> float:
    """Beyond three quarters, of an exponential cloud with these counts: by bisection."""
    low, high = 0.0, 1.0
    for _ in range(200):  # counts per quarter of the way: 1, r, r², ...
        rate = (low + high) / 2
        low, high = (rate, high) if rate**2 / (1 + rate) < between / before else (low, rate)
    scale = before / (1 + low)
    return scale * sum(low**k for k in range(3, 2000))


@pytest.mark.parametrize(("before", "between"), [(100, 4), (100, 20), (37, 11), (1000, 90)])
def test_evidence_turns_positive_where_an_exponential_tail_ends(before: int, between: int) -> None:
    bound = tail(before, between)
    fewer, more = (np.ones(round(bound) + step) for step in (-1, 1))
    assert excess(before, between, fewer) <= 0 < excess(before, between, more)


def test_no_cloud_that_thins_out_faster_and_faster_is_evidence() -> None:
    rng = np.random.default_rng(0)
    clouds = {
        "normal": rng.normal(0, 0.4, (300, 400)),
        "exponential": rng.exponential(0.4, (300, 400)) - 0.2,
        "even": rng.uniform(-1, 1, (300, 400)),
    }
    for name, cloud in clouds.items():
        values = []
        for places in cloud:
            near = np.histogram(places, [0, 0.5, 0.75])[0]
            values.append(excess(int(near[0]), int(near[1]), np.ones((places >= 0.75).sum())))
        assert np.mean(np.array(values) > 2.33) <= 0.03, name


def test_wrong_labels_are_no_evidence() -> None:
    rng = np.random.default_rng(0)
    values = [excess(100, 2, rng.uniform(-1, 1, 20)) for _ in range(500)]
    assert np.mean(np.array(values) > 2.33) <= 0.03


def marked(share: float, seed: int = 0) -> tuple[Task, np.ndarray]:
    """Classes that features tell well, and a mark in the second of two views of the figures."""
    rng = np.random.default_rng(seed)
    n = 600
    y = np.arange(n) % 2
    x = rng.normal(size=(n, 30))
    x[:, :3] += 2.5 * y[:, None]
    follows = rng.random(n) < share
    figures = rng.normal(size=(n, 6))
    figures[:, 0] += 0.5 * y  # a soft cue of nature
    figures[:, 4] += 8 * np.where(follows, y, 1 - y)
    task = task_of(x.astype(np.float32), y)
    views = View("soft", (30, 31, 32)), View("mark", (33, 34, 35))
    return replace(task, figures=torch.from_numpy(figures).float(), views=views), follows


def test_a_mark_that_only_a_view_shows_is_found_there_and_told_of_other_samples(tmp_path) -> None:  # type: ignore[no-untyped-def]
    task, follows = marked(0.95)
    result = PeelRanker(PeelConfig()).rank(task, Session(), Blind())
    assert [p["view"] for p in result.details["patterns"]] == ["mark"]
    np.testing.assert_array_equal(result.stages["stage_1"] > 0.5, follows)
    assert result.patterns is not None
    result.patterns.save(tmp_path / "patterns.safetensors")
    model = PatternModel.load(tmp_path / "patterns.safetensors")
    other, others_follow = marked(0.7, seed=1)
    told = model.follows(other.seen(torch.arange(len(other))), other.targets)
    np.testing.assert_array_equal(told[:, 0] > 0.5, others_follow)


def test_a_soft_cue_in_a_view_is_no_pattern() -> None:
    task, _ = marked(0.5)
    result = PeelRanker(PeelConfig()).rank(task, Session(), Blind())
    assert not result.stages


def test_a_task_through_a_view_has_its_columns_and_the_same_samples() -> None:
    task, _ = marked(0.9)
    part = task.subset(torch.tensor([5, 2, 9]))
    view = View("both", (1, 34))
    everyone = torch.arange(3)
    wanted = part.seen(everyone)[:, [1, 34]]
    torch.testing.assert_close(part.through(view).batch(everyone), wanted)
    assert part.seen(everyone).shape == (3, 36)
