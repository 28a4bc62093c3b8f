"""The loop that all methods share: the rate of every step, for every network."""

from __future__ import annotations

import pytest

from debiasing.toys import SETTINGS, features, fit
from sebra.debiasing.registry import METHODS, method_class
from sebra.engine import step as steps
from sebra.errors import UsageError

TWICE = ("jtt",)  # trains two networks, one after the other


@pytest.fixture
def rates(monkeypatch):
    """The rates of a step's optimisers, for every step that is taken."""
    seen: list[list[float]] = []
    run = steps.TrainStep._run

    def noted(self, index, rand, content):
        seen.append([float(o.param_groups[0]["lr"]) for o in self.optimizers])
        return run(self, index, rand, content)

    monkeypatch.setattr(steps.TrainStep, "_run", noted)
    return seen


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(TWICE)))
def test_a_warm_up_raises_the_rate_step_by_step(rates, name):
    settings = {**SETTINGS["features"], "lr": 0.1, "epochs": 3}
    fit(method_class(name), features(), **settings)
    plain, rates[:] = list(rates), []
    fit(method_class(name), features(), **settings, warmup=2)
    assert all(rate == pytest.approx(0.1) for step in plain for rate in step)
    warm, after = len(plain) * 2 // 3, len(plain) // 3
    assert len(rates) == len(plain)
    turns = 2 if name == "debian" else 1  # its two networks step in turn
    total = warm // turns
    for i, step in enumerate(rates[:warm]):
        assert all(r == pytest.approx(0.1 * (i // turns + 1) / total) for r in step)
    assert all(r == pytest.approx(0.1) for step in rates[-after:] for r in step)


def test_both_trainings_of_jtt_end_at_the_full_rate(rates):
    settings = {**SETTINGS["features"], "lr": 0.1, "epochs": 3, "identify_epochs": 1}
    fit(method_class("jtt"), features(), **settings, upsample=1, warmup=2)
    steps_of_epoch = len(rates) // 4
    first, second = rates[:steps_of_epoch], rates[steps_of_epoch:]
    assert first[-1] == second[-1] == [pytest.approx(0.1)]
    assert second[0][0] < first[0][0] < 0.1


def test_a_warm_up_ends_within_the_epochs():
    with pytest.raises(UsageError, match="warmup"):
        method_class("erm").config_class(epochs=3, warmup=4)
