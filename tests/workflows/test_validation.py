"""The epoch that is kept is the best one by the best evidence that the data has."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import miniatures
from sebra.debiasing.selection import Selector
from sebra.engine.session import Session
from sebra.runs.meter import Meter
from sebra.workflows import evaluate, validation
from sebra.workflows.debias import LAST_EPOCHS, _selection
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Source
from sebra.workflows.validation import make_selector, split_training


class Answers(nn.Module):
    """A network that says what it is told to, whatever it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.said = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.classes = np.zeros(0, dtype=np.int64)


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(validation, "predicted_classes", lambda net, task: net.classes)
    return Answers()


def prepared_of(tmp_path, n=240, **changes):
    arrays = miniatures.features(n=n) | changes
    arrays = {k: v for k, v in arrays.items() if v is not None}
    file = tmp_path / "x.npz"
    np.savez(file, **arrays)
    return prepare(Source(str(file), device="cpu"), Session(), Meter()), arrays


def tell(selector, network, epoch, answers):
    network.classes = np.asarray(answers)
    network.said[0] = epoch
    selector.epoch(epoch, network, 0.0)


def kept(selector, network):
    selector.restore(network)
    return selector.best_epoch, int(network.said[0])


def test_groups_of_the_val_split_are_judged_by_the_worst(tmp_path, network):
    """Epoch 0 is right on average, epoch 1 for every group alike: the second is kept."""
    prepared, arrays = prepared_of(tmp_path, n=1200)
    val = arrays["split"] == 1
    y, cue = arrays["y"][val], arrays["cue"][val]
    selector = make_selector(prepared, split_training(prepared.samples, 0), None, 99)
    assert selector.criterion == "worst validation group"
    follows_the_cue = cue
    fair = y.copy()
    for c in (0, 1):
        for aligned in (True, False):
            group = np.flatnonzero((y == c) & ((cue == y) == aligned))
            fair[group[: int(np.ceil(len(group) * 0.3))]] = 1 - c
    assert (fair == y).mean() < (follows_the_cue == y).mean()
    tell(selector, network, 0, follows_the_cue)
    tell(selector, network, 1, fair)
    assert kept(selector, network) == (1, 1)


def test_without_known_groups_classes_weigh_alike(tmp_path, network):
    y = np.r_[np.zeros(200, int), np.ones(40, int)][np.random.default_rng(0).permutation(240)]
    for changes in ({"cue": None}, {"cue": np.where(np.arange(240) < 160, y, np.nan)}):
        prepared, arrays = prepared_of(tmp_path, y=y, **changes)
        targets = y[arrays["split"] == 1]
        selector = make_selector(prepared, split_training(prepared.samples, 0), None, 99)
        assert selector.criterion == "balanced validation accuracy"
        fair = targets.copy()
        fair[np.flatnonzero(targets == 0)[:12]] = 1
        tell(selector, network, 0, np.zeros_like(targets))  # the large class alone
        tell(selector, network, 1, fair)
        assert kept(selector, network) == (1, 1)
        assert selector.rows[0]["balanced_accuracy"] == 50.0


def test_without_a_val_split_the_least_spurious_held_out_third_decides(tmp_path, network):
    split = np.repeat([0, 2], [200, 40])
    prepared, arrays = prepared_of(tmp_path, split=split, cue=None)
    parts = split_training(prepared.samples, 0)
    labels = arrays["y"][:200]
    rank = np.empty(200, dtype=np.int64)
    for c in (0, 1):
        rank[labels == c] = np.random.default_rng(c).permutation((labels == c).sum())
    asked = []
    subset = type(prepared.task("train")).subset

    def noted(self, index):
        asked.append(index.cpu().numpy())
        return subset(self, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(prepared.task("train")), "subset", noted)
        selector = make_selector(prepared, parts, rank, 99)
    assert "least spurious held-out" in selector.criterion
    (chosen,) = asked
    for c in (0, 1):
        held = parts.heldout[labels[parts.heldout] == c]
        best = held[np.argsort(rank[held])][-round(len(held) / 3) :]
        assert set(chosen[labels[chosen] == c]) == set(best)
    assert not set(chosen) & set(parts.train)


def test_the_mean_of_the_last_epochs_is_of_those_alone():
    selector = Selector(lambda net: (0.0, {}), "any")
    values = [10.0, 20.0, 50.0, 60.0, 70.0, 80.0, 90.0]
    selector.rows = [{"score": 1.0, "test_accuracy": v} for v in values]
    assert LAST_EPOCHS == 5
    assert _selection(selector)["mean_of_last_epochs"] == pytest.approx(70.0)


def test_a_last_step_stands_however_epochs_scored():
    """As DFR's last layer: selection describes the model that is returned."""
    scores = iter([80.0, 90.0, 40.0])
    selector = Selector(lambda net: (next(scores), {"test_accuracy": 1.0}), "any")
    network = Answers()
    for epoch in (0, 1):
        network.said[0] = epoch
        selector.epoch(epoch, network, 0.0)
    assert selector.best_epoch == 1
    network.said[0] = 2
    selector.rows[-1]["test_accuracy"] = 99.0
    selector.settle(2, network, 0.0)
    found = _selection(selector)
    assert (found["best_epoch"], found["score"]) == (2, 40.0)
    assert found["mean_of_last_epochs"] == 1.0
    selector.restore(network)
    assert network.said[0] == 2


def test_pd_is_the_mean_of_the_last_epochs_of_plain_training(monkeypatch, tmp_path):
    prepared, arrays = prepared_of(tmp_path, cue=None)
    right = iter(np.arange(1000))
    n = int((arrays["split"] == 2).sum())
    seen = []

    def answers(network, task):
        count = int(next(right)) % (n + 1)
        seen.append(100 * count / n)
        targets = task.targets.cpu().numpy()
        return np.where(np.arange(n) < count, targets, 1 - targets)

    monkeypatch.setattr(evaluate, "predicted_classes", answers)
    found = evaluate.subset_accuracy(prepared, np.arange(60), Session())
    assert 1 < evaluate.PD_LAST_EPOCHS < 20
    assert found == pytest.approx(np.mean(seen[-evaluate.PD_LAST_EPOCHS :]))
