"""A network that is set back trains as a new one does; judges keep few embeddings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from ranking.toys import images
from sebra.engine.session import Session
from sebra.engine.step import make_optimizer, set_back
from sebra.ranking import crossfit
from sebra.ranking.crossfit import NetworkJudge
from sebra.ranking.retraining import state_of


@dataclass(frozen=True)
class Config:
    folds: int = 3
    steps: int = 4
    batch: int = 8
    optimizer: str = "sgd"
    lr: float = 0.05
    weight_decay: float = 0.0
    momentum: float = 0.9
    beta: float = 1.25
    flip: bool = False
    crop: bool = False
    penalty_contrast: float = 1e-3


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_network_that_is_set_back_trains_as_a_new_one_does(name):
    task = images()
    network = task.network().train()
    optimizer = make_optimizer(network, name, 0.01, momentum=0.9)

    def trained():
        for _ in range(3):
            optimizer.zero_grad()
            network(task.batch(torch.arange(8))).square().sum().backward()
            optimizer.step()
        return state_of(network)

    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    start = state_of(network)
    first = trained()
    set_back(network, optimizer, start)
    second = trained()
    for key, value in first.items():
        torch.testing.assert_close(value, second[key])
    assert any(not torch.equal(first[k], start[k]) for k in first)


def judge(task, **settings):
    return NetworkJudge(task, Session(), Config(**settings))


def test_a_network_is_built_once_for_every_fold_and_judges_as_a_new_one():
    task, built = images(n=30), []
    counted = replace(task, build=lambda seed, hidden: built.append(seed) or task.build(seed, 0))
    weights, targets = torch.ones(30), task.targets
    again = judge(counted)
    first = again.tell_class(targets, weights)
    again.tell_apart(1 - targets, weights)
    torch.testing.assert_close(again.tell_class(targets, weights), first)
    assert len(built) == len(set(built)) == 3


def test_telling_apart_by_some_samples_judges_all_and_keeps_embeddings_of_those_alone(monkeypatch):
    task, weights = images(n=60), torch.ones(60)
    found = []
    for most in (60, 40):
        monkeypatch.setattr(crossfit, "_MOST_TO_FIT", most)
        monkeypatch.setattr(crossfit, "_BLOCK", 7)
        made = judge(task, steps=30)
        made.tell_class(task.targets, weights)
        found.append(made.tell_apart(task.targets, weights))
        assert [len(seen) for _, seen in made._trained] == [most] * 3
    for logits in found:
        assert float((logits.argmax(1) == task.targets).float().mean()) > 0.9
