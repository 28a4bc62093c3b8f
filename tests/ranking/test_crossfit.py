"""Held-out judges: what a watch sees on their way, and that it changes nothing."""

from __future__ import annotations

import pytest
import torch

from ranking.toys import images, noisy
from sebra.engine.session import Session
from sebra.ranking.crossfit import HeadJudge, NetworkJudge
from sebra.ranking.peel import PeelConfig, PeelRanker
from sebra.ranking.ranking import Blind


def judge_of(kind: str):
    if kind == "heads":
        return HeadJudge(noisy(n=120), 3, (3e-3, 1e-3))
    config = PeelConfig(steps=120, folds=3, batch=10, optimizer="adam", flip=False)
    return NetworkJudge(images(n=30), Session(), config)


@pytest.mark.parametrize("kind", ["heads", "networks"])
def test_a_watch_sees_the_way_and_changes_nothing(kind):
    judge = judge_of(kind)
    targets, weights = judge.task.targets, torch.ones(len(judge.task)).double()
    alone = judge_of(kind).tell_class(targets, weights)
    seen: list[tuple[float, torch.Tensor]] = []
    found = judge.tell_class(targets, weights, lambda epochs, logits: seen.append((epochs, logits)))
    assert torch.equal(found, alone)
    epochs = [at for at, _ in seen]
    assert epochs == sorted(set(epochs))
    assert len(epochs) >= 3
    assert torch.allclose(seen[-1][1], found, atol=1e-5)  # where it ends
    assert not torch.allclose(seen[0][1], found, atol=1e-2)  # where it began


def test_networks_are_seen_by_epochs_of_what_they_train_on():
    judge = judge_of("networks")
    seen: list[float] = []
    judge.tell_class(
        judge.task.targets, torch.ones(30).double(), lambda epochs, _: seen.append(epochs)
    )
    steps = range(2, 121, 2)  # an epoch of twenty samples is two steps
    assert seen == pytest.approx([n / 2 for n in steps])


def test_a_ranker_tells_which_stage_it_is_at():
    task = noisy(n=300, classes=2)
    ranker = PeelRanker(PeelConfig())
    seen: list[tuple[int, int]] = []
    ranker.watch = lambda stage, _, margins: seen.append((stage, len(margins)))
    watched = ranker.rank(task, Session(), Blind())
    assert {stage for stage, _ in seen} == set(range(1, 2 + len(watched.stages or ())))
    assert {n for _, n in seen} == {300}
    assert (PeelRanker(PeelConfig()).rank(task, Session(), Blind()).bucket == watched.bucket).all()
