"""Pairs and draws over discovered shortcuts."""

from __future__ import annotations

import pytest
import torch

from sebra.debiasing.stages import pattern_chances, patterns


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
