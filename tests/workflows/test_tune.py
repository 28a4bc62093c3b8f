"""`--tune` chooses settings by trust: no attribute is asked, the clock is kept."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from ranking.toys import planted
from sebra.cli.main import run as cli
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.measuring.ranks import by_class, somers_d
from sebra.ranking.ranking import Blind, RankResult, ranks_within_classes
from sebra.ranking.registry import ranker_class
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker
from sebra.runs.config import build_config
from sebra.workflows.tune import SPACES, Axis, space_of, tune


class Dial:
    """A ranker whose only setting says how much of the truth it mixes into chance."""

    truth: np.ndarray

    def __init__(self, config: SebraConfig) -> None:
        self.config = config

    def rank(self, task, session, monitor) -> RankResult:
        chance = np.random.default_rng(0).random(len(task))
        score = self.config.beta * self.truth + chance
        return RankResult(np.zeros(len(task), dtype=np.int64), score)


def test_the_setting_with_the_better_order_is_chosen():
    task, conflicting = planted(n=600)
    Dial.truth = (~conflicting).astype(float)
    start = SebraConfig(beta=0.2)
    space = (Axis("beta", values=(0.1, 2.0, 0.3)),)
    chosen, trials = tune(task, Dial, start, space, Session())
    assert chosen.beta == 2.0
    assert [t["settings"]["beta"] for t in trials] == [0.2, 0.1, 2.0, 0.3]
    assert sum(t["chosen"] for t in trials) == 1


def test_tuning_ends_near_the_best_setting_that_the_attributes_would_choose():
    task, conflicting = planted(n=600)
    labels = task.targets.numpy()
    start = SebraConfig(lr=3.0, epochs=6, batch=0, resolution="epoch", flip=False)
    space = (Axis("lr", factors=(0.1, 0.01)), Axis("p_critical", values=(0.95, 0.6)))

    def true_d(config: SebraConfig) -> float:
        result = SelfGuidedRanker(config).rank(task, Session(), Blind())
        rank = ranks_within_classes(result.bucket, result.score, labels)
        return float(np.mean(list(by_class(somers_d, rank, conflicting, labels).values())))

    chosen, trials = tune(task, SelfGuidedRanker, start, space, Session())
    best = max(true_d(dataclasses.replace(start, **t["settings"])) for t in trials)
    assert true_d(chosen) > best - 0.05


def test_without_time_the_settings_stay():
    task, conflicting = planted(n=300)
    Dial.truth = (~conflicting).astype(float)
    start = SebraConfig(beta=0.2)
    chosen, trials = tune(task, Dial, start, (Axis("beta", values=(2.0,)),), Session(), seconds=0)
    assert (len(trials), chosen) == (1, start)


def test_a_finished_search_is_not_repeated_after_an_interruption(tmp_path):
    task, conflicting = planted(n=300)
    Dial.truth = (~conflicting).astype(float)
    space = (Axis("beta", values=(2.0,)),)
    first = tune(task, Dial, SebraConfig(beta=0.2), space, Session(tmp_path))
    Dial.truth = conflicting.astype(float)  # a search would now come out otherwise
    again = tune(task, Dial, SebraConfig(beta=0.2), space, Session(tmp_path, resume=True))
    assert again == first


def test_what_the_user_set_is_not_searched():
    names = [axis.name for axis in space_of("sebra", "features", ("lr=0.1",))]
    assert names == ["p_critical", "beta"]
    assert [a.name for a in space_of("sebra", "features", ("lam=0.3",))] == ["lr"]
    with pytest.raises(UsageError, match="--tune: random has no settings"):
        space_of("random", "features")


@pytest.mark.parametrize("method", sorted(SPACES))
@pytest.mark.parametrize("mode", ["features", "finetune"])
def test_every_alternative_is_a_valid_setting_of_its_ranker(method, mode):
    kind = ranker_class(method).config_class
    config = build_config(kind, "rank", method, mode)
    for axis in space_of(method, mode):
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
    assert [axis.name for axis in space_of("sebra", "features", (), config)] == ["lr"]


def test_more_steps_are_expected_to_take_longer():
    axis = Axis("steps", factors=(2.0, 0.5))
    assert [axis.cost(100, v) for v in axis.beside(100)] == [2.0, 1.0]
    assert Axis("lr", factors=(3.0,)).cost(0.1, 0.3) == 1.0
