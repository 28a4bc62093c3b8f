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
from sebra.ranking import views
from sebra.ranking.atoms import atoms_of
from sebra.ranking.clouds import log_concave, second_cloud
from sebra.ranking.crossfit import HeadJudge
from sebra.ranking.evidence import Evidence, evidence_of
from sebra.ranking.patterns import PatternModel
from sebra.ranking.peel import PeelConfig, PeelRanker
from sebra.ranking.ranking import Blind


def test_the_log_concave_fit_is_the_likeliest_of_all_that_are() -> None:
    rng = np.random.default_rng(0)
    counts = np.array([1, 0, 9, 30, 22, 4, 6, 0, 2, 5, 0], dtype=float)
    fit = log_concave(counts)
    held = slice(0, 10)
    assert np.diff(np.log(fit[held]), 2).max() < 1e-6
    assert fit[10] == 0
    assert fit.sum() == pytest.approx(counts.sum(), rel=1e-3)

    def likely(rates: np.ndarray) -> float:
        return float((counts[held] * np.log(rates)).sum() - rates.sum())

    x = np.arange(10)
    for _ in range(300):  # other concave ones, near and far
        bends = -np.maximum(x[:, None] - rng.integers(0, 10, 3), 0) @ rng.exponential(0.1, 3)
        other = np.log(fit[held]) + bends + rng.normal(0, 0.1) * x + rng.normal(0, 0.1)
        assert likely(np.exp(other)) <= likely(fit[held]) + 1e-3


def test_no_cloud_that_thins_out_faster_and_faster_has_a_second_one() -> None:
    rng = np.random.default_rng(0)
    clouds = {
        "normal": rng.normal(0, 0.4, (120, 400)),
        "exponential": rng.exponential(0.4, (120, 400)) - 0.28,
        "even": rng.uniform(-1, 1, (120, 400)),
    }
    for name, cloud in clouds.items():
        values = np.array([second_cloud(own, 1 - own[::-1])[0] for own in cloud])
        assert np.mean(values > 2.33) <= 0.04, name


def test_a_second_cloud_is_seen_and_its_samples_are_told() -> None:
    rng = np.random.default_rng(0)
    own = np.concatenate([rng.normal(0, 0.2, 285), rng.normal(1, 0.2, 15)])
    value, share = second_cloud(own, rng.normal(1, 0.2, 300))
    assert value > 4
    assert share[285:].mean() > 0.9
    assert share[:285].mean() < 0.02


def test_wrong_labels_are_no_evidence() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 300)
    wrong = rng.random(600) < 0.08
    truth = np.where(wrong, 1 - y, y)
    values = []
    for _ in range(20):
        told, rest = ((2 * truth - 1) + rng.normal(0, spread, 600) for spread in (0.3, 0.5))
        found = evidence_of(*(np.stack([-v, v], 1) for v in (told, rest)), y, wrong, y >= 0)
        values.append(found.chance(1))
    assert np.mean(np.array(values) <= 0.01) <= 0.05


def test_a_fixed_value_that_does_not_fit_its_column_is_an_atom() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.normal(size=(200, 4)).astype(np.float32)
    x[:, 1] = rng.integers(0, 6, 200)
    x[:, 2] = np.where(y == 1, 3, rng.integers(0, 6, 200))  # a count like others
    x[y == 1, 3] = -9.5
    assert atoms_of(x, y) == [(3, -9.5)]
    x[y == 1, 1] = 2.25  # between two counts
    assert atoms_of(x, y) == [(1, 2.25), (3, -9.5)]
    x[:, 3] = np.maximum(0, rng.normal(size=200) - 1.5 * y)  # cut off, as networks do
    assert atoms_of(x, y) == [(1, 2.25)]
    assert atoms_of((y[:, None] == np.arange(2)).astype(np.float32), y) == []  # two kinds


def test_a_fixed_value_is_found_and_told_of_other_samples(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def sample(share: float, seed: int) -> tuple[Task, np.ndarray]:
        rng = np.random.default_rng(seed)
        y = np.arange(400) % 2
        x = rng.normal(size=(400, 12))
        x[:, 0] += 4 * y
        follows = rng.random(400) < share
        x[np.where(follows, y == 1, y == 0), 7] = 0.5
        return task_of(x.astype(np.float32), y), follows

    task, follows = sample(0.95, 0)
    result = PeelRanker(PeelConfig()).rank(task, Session(), Blind())
    np.testing.assert_array_equal(result.stages["stage_1"] > 0.5, follows)
    assert result.patterns is not None
    result.patterns.save(tmp_path / "patterns.safetensors")
    model = PatternModel.load(tmp_path / "patterns.safetensors")
    other, others_follow = sample(0.7, 1)
    told = model.follows(other.seen(torch.arange(len(other))), other.targets)
    np.testing.assert_array_equal(told[:, 0] > 0.5, others_follow)


def marked(share: float, seed: int = 0, told: float = 2.5) -> tuple[Task, np.ndarray]:
    """Classes that features tell so well, and a mark in the second of two views of the figures."""
    rng = np.random.default_rng(seed)
    n = 600
    y = np.arange(n) % 2
    x = rng.normal(size=(n, 30))
    x[:, :3] += told * y[:, None]
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


def test_a_plain_mark_is_found_in_a_view_though_all_else_says_nothing_of_labels(
    monkeypatch,
) -> None:  # type: ignore[no-untyped-def]
    task, follows = marked(0.95, told=0.0)
    result = PeelRanker(PeelConfig()).rank(task, Session(), Blind())
    assert [p["view"] for p in result.details["patterns"]] == ["mark"]
    np.testing.assert_array_equal(result.stages["stage_1"] > 0.5, follows)
    monkeypatch.setattr(views, "BELIEVED", 0.0)  # wrong labels would look the same
    assert not PeelRanker(PeelConfig()).rank(task, Session(), Blind()).stages


def test_the_same_in_all_features_may_be_wrong_labels() -> None:
    task, _ = marked(0.95, told=0.0)
    assert task.figures is not None
    x = torch.cat([task.inputs.batch(torch.arange(len(task))), task.figures], 1)
    alone = task_of(x.numpy(), task.targets.numpy())
    assert not PeelRanker(PeelConfig()).rank(alone, Session(), Blind()).stages


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


@pytest.mark.parametrize("share", [0.95, 0.5])
def test_views_without_a_prospect_change_nothing_and_cost_no_model(share, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Models of all else are asked only where their answer can matter."""
    task, _ = marked(share)
    asked: list[int] = []
    tell = HeadJudge.tell_class
    monkeypatch.setattr(
        HeadJudge, "tell_class", lambda self, y, w: asked.append(1) or tell(self, y, w)
    )
    sure = Evidence(*np.full((4, 2), 99.0))

    def promising(told, rest, *other):  # type: ignore[no-untyped-def]
        return sure if rest is None else evidence_of(told, rest, *other)

    found = []
    for look in (evidence_of, promising):
        monkeypatch.setattr(views, "evidence_of", look)
        asked.clear()
        result = PeelRanker(PeelConfig()).rank(task, Session(), Blind())
        found.append((result, len(asked)))
    (quick, few), (whole, many) = found
    assert few < many
    assert list(quick.stages) == list(whole.stages)
    for name, column in quick.stages.items():
        np.testing.assert_array_equal(column, whole.stages[name])
    np.testing.assert_array_equal(quick.bucket, whole.bucket)
