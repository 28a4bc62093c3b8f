"""Pairs and draws over discovered shortcuts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from debiasing.toys import SETTINGS, features
from sebra.debiasing.registry import method_class
from sebra.debiasing.stages import pattern_chances, patterns
from sebra.engine.session import Session


def test_patterns_count_stronger_shortcuts_first():
    stages = torch.tensor([[0.9, 0.9], [0.9, 0.1], [0.1, 0.9], [0.1, 0.1]])
    assert patterns(stages, torch.zeros(4, dtype=torch.long), least=1).tolist() == [0, 1, 2, 3]


def test_rare_patterns_join_the_one_before():
    stages = torch.tensor([[0.9, 0.9]] * 5 + [[0.1, 0.9]] * 4 + [[0.1, 0.1]])
    found = patterns(stages, torch.zeros(10, dtype=torch.long), least=3)
    assert found.tolist() == [0] * 5 + [2] * 5


@pytest.mark.parametrize(("balance", "expected"), [(0.0, [0.8, 0.2]), (1.0, [0.5, 0.5])])
def test_chances_go_from_as_they_are_to_even(balance, expected):
    pattern = torch.tensor([0] * 8 + [1] * 2)
    chances = pattern_chances(pattern, torch.zeros(10, dtype=torch.long), balance)
    mass = [float(chances[pattern == k].sum()) for k in (0, 1)]
    assert mass == pytest.approx(expected)


def test_classes_weigh_the_same_whatever_their_size():
    targets = torch.tensor([0] * 9 + [1])
    chances = pattern_chances(torch.zeros(10, dtype=torch.long), targets, 0.5)
    assert float(chances[targets == 0].sum()) == pytest.approx(float(chances[targets == 1].sum()))


@pytest.mark.parametrize("settings", [{}, {"pairs": "buckets", "crop": 0.7}])
def test_without_stages_it_is_plain_training(settings):
    toy = features()
    shared = {**SETTINGS["features"], **settings}
    plain = {k: v for k, v in shared.items() if k != "pairs"}
    erm, stages = method_class("erm"), method_class("stages")
    help_ = toy.help(frozenset({"ranking"}))
    session = Session()
    found = stages(stages.config_class(**shared)).fit(
        toy.train, replace(help_, guide=replace(help_.guide, stages=None)), session
    )
    expected = erm(erm.config_class(**plain)).fit(toy.train, toy.help(frozenset()), Session())
    assert any("no pattern" in note for note in session.notes)
    for name, value in expected.state_dict().items():
        assert torch.equal(value, found.state_dict()[name]), name
