from __future__ import annotations

import pytest
import torch

from debiasing.toys import SETTINGS, accuracy, features, fit
from sebra.debiasing.erm import Erm
from sebra_bench.baselines.lff import Lff, RunningLoss, relative_difficulty


def test_running_loss_equals_a_loop():
    torch.manual_seed(0)
    targets = torch.tensor([0, 1, 0, 1, 0])
    running = RunningLoss(targets, 2, memory=0.7)
    expected: list[float | None] = [None] * 5
    for _ in range(4):
        index, losses = torch.randperm(5)[:3], torch.rand(3)
        running.update(index, losses)
        for i, v in zip(index.tolist(), losses.tolist(), strict=True):
            old = expected[i]
            expected[i] = v if old is None else 0.7 * old + 0.3 * v
    values = [v or 0.0 for v in expected]
    assert running.value.tolist() == pytest.approx(values)
    for i in range(5):
        largest = max(v for v, t in zip(values, targets.tolist(), strict=True) if t == targets[i])
        assert running.relative(torch.tensor([i])).item() == pytest.approx(values[i] / largest)


def test_difficulty_is_high_where_only_the_biased_network_fails():
    got = relative_difficulty(torch.tensor([1.0, 0.01, 0.5]), torch.tensor([0.01, 1.0, 0.5]))
    assert got.tolist() == pytest.approx([1 / 1.01, 0.01 / 1.01, 0.5])


LFF = {**SETTINGS["features"], "lr": 0.2}


def test_weights_concentrate_on_conflicting_samples():
    toy = features(share=0.1, noise=1.2)
    method, _ = fit(Lff, toy, **LFF)
    conflicting, aligned = method.weights[toy.conflicting], method.weights[~toy.conflicting]
    assert conflicting.mean() > aligned.mean() + 0.3
    assert ((method.weights >= 0) & (method.weights <= 1)).all()


def test_better_than_plain_training_where_the_cue_misleads():
    toy = features(share=0.1, noise=1.2)
    held = toy.held.subset(toy.held_conflicting)
    debiased = accuracy(fit(Lff, toy, **LFF)[1], held)
    assert debiased > accuracy(fit(Erm, toy, **LFF)[1], held) + 0.2
