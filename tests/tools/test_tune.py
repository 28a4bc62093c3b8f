"""`--tune` chooses settings by trust: no attribute is asked, the clock is kept."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from ranking.toys import images, planted
from sebra.cli.main import run as cli
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.measuring.ranks import by_class, somers_d
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Blind, Ranker, RankResult
from sebra.ranking.registry import ranker_class
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker
from sebra.runs.config import settle
from sebra_tools.tune import SPACES, Axis, space_of, tune


class Dial(Ranker):
    """A ranker whose only setting says how much of what it sees it mixes into chance."""

    sign = 1.0

    def rank(self, task, session, monitor) -> RankResult:
        x = task.batch(torch.arange(len(task))).double().numpy()
        x = np.c_[(x - x.mean(0)) / x.std(0), np.ones(len(x))]
        y = 2.0 * (task.targets.numpy() == task.targets.numpy()[0]) - 1
        seen = y * (x @ np.linalg.lstsq(x, y, rcond=None)[0])
        chance = np.random.default_rng(0).normal(size=len(task))
        score = self.config.beta * self.sign * seen + chance
        return RankResult(np.zeros(len(task), dtype=np.int64), score)


def test_the_setting_with_the_better_order_is_chosen():
    task, _ = planted(n=600)
    start = SebraConfig(beta=0.2)
    space = (Axis("beta", values=(0.1, 20.0, 0.3)),)
    chosen, trials = tune(task, Dial, start, space, Session())
    assert chosen.beta == 20.0
    assert [t["settings"]["beta"] for t in trials] == [0.2, 0.1, 20.0, 0.3]
    assert sum(t["chosen"] for t in trials) == 1


def test_tuning_leaves_a_step_that_is_far_too_large():
    task, conflicting = planted(n=600)
    labels = task.targets.numpy()
    start = SebraConfig(lr=3.0, epochs=6, batch=0, resolution="epoch", flip=False)
    space = (Axis("lr", factors=(0.1, 0.01)),)

    def true_d(config: SebraConfig) -> float:
        result = SelfGuidedRanker(config).rank(task, Session(), Blind())
        rank = ranks_within_classes(result.bucket, result.score, labels)
        return float(np.mean(list(by_class(somers_d, rank, conflicting, labels).values())))

    chosen, trials = tune(task, SelfGuidedRanker, start, space, Session())
    best = max(true_d(dataclasses.replace(start, **t["settings"])) for t in trials)
    assert true_d(chosen) > best - 0.05


def test_without_time_the_settings_stay():
    task, _ = planted(n=300)
    start = SebraConfig(beta=0.2)
    chosen, trials = tune(task, Dial, start, (Axis("beta", values=(2.0,)),), Session(), seconds=0)
    assert (len(trials), chosen) == (1, start)


def test_a_finished_search_is_not_repeated_after_an_interruption(tmp_path, monkeypatch):
    task, _ = planted(n=300)
    space = (Axis("beta", values=(2.0,)),)
    first = tune(task, Dial, SebraConfig(beta=0.2), space, Session(tmp_path))
    monkeypatch.setattr(Dial, "sign", -1.0)  # a search would now come out otherwise
    again = tune(task, Dial, SebraConfig(beta=0.2), space, Session(tmp_path, resume=True))
    assert again == first


def test_what_the_user_set_is_not_searched():
    names = [axis.name for axis in space_of("sebra", ("lr=0.1",))]
    assert names == ["p_critical", "beta"]
    assert [a.name for a in space_of("sebra", ("lam=0.3",))] == ["lr"]
    with pytest.raises(UsageError, match="--tune: random has no settings"):
        space_of("random")


@pytest.mark.parametrize("method", sorted(SPACES))
def test_every_alternative_is_a_valid_setting_of_its_ranker(method):
    kind = ranker_class(method).config_class
    config = settle(kind, "rank", method, "features").config
    for axis in space_of(method):
        others = axis.beside(getattr(config, axis.name))
        assert others
        for value in others:
            changed = dataclasses.replace(config, **{axis.name: value})
            assert getattr(changed, axis.name) == value != getattr(config, axis.name)


def test_the_command_prints_the_trials_and_keeps_the_choice(tmp_path, capsys):
    command = ["rank", "demo?n=200", "--mode", "features", "--backbone", "random"]
    more = ["--tune", "--tune-seconds", "2", "--device", "cpu", "--set", "epochs=3", "--json"]
    assert cli([*command, *more, "--out", str(tmp_path / "run")]) == 0
    metrics = json.loads(capsys.readouterr().out)
    (chosen,) = [t for t in metrics["tuning"] if t["chosen"]]
    assert 0 <= metrics["ranking"]["trust"] <= 1
    text = (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")
    assert f"lr = {chosen['settings']['lr']}" in text


def test_tune_refuses_a_ranker_without_settings(tmp_path, capsys):
    assert cli(["rank", "demo", "--method", "random", "--tune", "--out", str(tmp_path / "r")]) == 2
    assert "--tune" in capsys.readouterr().err


def test_a_threshold_that_a_preset_gives_is_not_searched():
    config = SebraConfig(lam=0.2)
    assert [axis.name for axis in space_of("sebra", (), config)] == ["lr"]


def test_pictures_that_are_not_frozen_are_refused():
    with pytest.raises(UsageError, match="--mode features"):
        tune(images(), SelfGuidedRanker, SebraConfig(), (), Session())
