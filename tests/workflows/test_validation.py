"""The epoch that is kept is the best one by the best evidence that the data has."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import miniatures
from sebra.debiasing.selection import Selector
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.meter import Meter
from sebra.workflows import validation
from sebra.workflows.debias import DebiasOptions, _selection, debias
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Source
from sebra.workflows.validation import (
    drawn_of,
    make_selector,
    pool_of,
    split_training,
    val_is_drawn_otherwise,
)
from sebra_bench import disparity


class Answers(nn.Module):
    """A network that says what it is told to, whatever it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.said = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.classes = np.zeros(0, dtype=np.int64)


@pytest.fixture
def network(monkeypatch):
    """What it says reaches every criterion."""

    def logits(net, task, index):
        return torch.nn.functional.one_hot(torch.from_numpy(net.classes), task.classes).float()

    monkeypatch.setattr(validation, "predicted_classes", lambda net, task: net.classes)
    monkeypatch.setattr(validation, "predict", logits)
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


def selector_of(prepared, select="auto", ranking=None):
    parts = split_training(prepared.samples, 0)
    pool = pool_of(prepared, prepared, parts, ranking)
    return make_selector(prepared, parts, pool, ranking, select), parts


def ranking_of(labels, follows=None, rank=None):
    """A ranking of training samples, with one stage where it is known who follows it."""
    if rank is None:
        rank = np.arange(len(labels))
    table = pd.DataFrame({"id": np.arange(len(labels)).astype(str), "label": labels, "rank": rank})
    return Ranking(table if follows is None else table.assign(stage_1=follows.astype(float)))


def fair_and_not(y, cue):
    """Answers by the cue, and answers that are as often right in every group."""
    fair = y.copy()
    for c in (0, 1):
        for aligned in (True, False):
            group = np.flatnonzero((y == c) & ((cue == y) == aligned))
            fair[group[: int(np.ceil(len(group) * 0.3))]] = 1 - c
    assert (fair == y).mean() < (cue == y).mean()
    return cue, fair


def test_true_groups_are_judged_by_the_worst_where_that_is_asked_for(tmp_path, network):
    """Epoch 0 is right on average, epoch 1 for every group alike: the second is kept."""
    prepared, arrays = prepared_of(tmp_path, n=1200)
    val = arrays["split"] == 1
    follows_the_cue, fair = fair_and_not(arrays["y"][val], arrays["cue"][val])
    for select, epoch in (("groups", 1), ("auto", 0)):
        selector, _ = selector_of(prepared, select)
        assert selector.criterion == {"groups": "groups", "auto": "class"}[select]
        tell(selector, network, 0, follows_the_cue)
        tell(selector, network, 1, fair)
        assert kept(selector, network) == (epoch, epoch)


class Cue:
    """A model of patterns that knows the cue of every val sample."""

    def __init__(self, cue):
        self.cue = cue

    def follows(self, features, labels):
        return (self.cue == labels.numpy())[:, None].astype(float)


def test_discovered_groups_of_the_val_split_choose_as_true_ones_would(tmp_path, network):
    prepared, arrays = prepared_of(tmp_path, n=1200)
    train, val = (arrays["split"] == k for k in (0, 1))
    follows = arrays["cue"][train] == arrays["y"][train]
    ranking = ranking_of(arrays["y"][train], follows)
    ranking.patterns = Cue(arrays["cue"][val])
    selector, _ = selector_of(prepared, ranking=ranking)
    assert selector.criterion == "discovered groups"
    follows_the_cue, fair = fair_and_not(arrays["y"][val], arrays["cue"][val])
    tell(selector, network, 0, follows_the_cue)
    tell(selector, network, 1, fair)
    assert kept(selector, network) == (1, 1)


def test_without_known_groups_classes_weigh_alike(tmp_path, network):
    y = np.r_[np.zeros(200, int), np.ones(40, int)][np.random.default_rng(0).permutation(240)]
    prepared, arrays = prepared_of(tmp_path, y=y, cue=None)
    targets = y[arrays["split"] == 1]
    selector, _ = selector_of(prepared)
    assert selector.criterion == "class"
    fair = targets.copy()
    fair[np.flatnonzero(targets == 0)[:12]] = 1
    tell(selector, network, 0, np.zeros_like(targets))  # the large class alone
    tell(selector, network, 1, fair)
    assert kept(selector, network) == (1, 1)
    assert selector.rows[0]["balanced_accuracy"] == 50.0


@pytest.mark.parametrize("cue", [None, "train alone"])
def test_groups_that_no_choosing_sample_has_are_refused(tmp_path, cue):
    arrays = miniatures.features(n=240)
    known = None if cue is None else np.where(arrays["split"] == 0, arrays["cue"], np.nan)
    prepared, _ = prepared_of(tmp_path, cue=known)
    with pytest.raises(UsageError, match=r"--select groups: the samples of .* have no attributes"):
        selector_of(prepared, "groups")


def test_without_samples_that_choose_the_last_epoch_is_kept(tmp_path):
    prepared, _ = prepared_of(tmp_path, split=np.repeat([0, 1], [200, 40]))
    parts = split_training(prepared.samples, 0, holds_out=False)
    assert pool_of(prepared, prepared, parts, None) is None
    assert make_selector(prepared, parts, None, None, "auto").criterion == "last epoch"


@pytest.mark.parametrize("splits", [(), (1,), (2,), (1, 2)], ids=["none", "val", "test", "both"])
@pytest.mark.parametrize("holds_out", [True, False])
def test_those_that_train_choose_and_are_evaluated_are_never_the_same(tmp_path, splits, holds_out):
    sizes = [240 - 40 * len(splits)] + [40] * len(splits)
    prepared, arrays = prepared_of(tmp_path, split=np.repeat([0, *splits], sizes))
    parts = split_training(prepared.samples, 0, holds_out)
    shares = [set(p.tolist()) for p in (parts.train, parts.select, parts.evaluate)]
    assert sum(map(len, shares)) == len(set.union(*shares)) == sizes[0]
    assert bool(parts.evaluate.size) == (splits == ())
    assert bool(parts.select.size) == (holds_out and splits != (1, 2))
    for part in (parts.select, parts.evaluate):
        if part.size:
            labels = arrays["y"][: sizes[0]][part]
            assert abs((labels == 0).sum() - (labels == 1).sum()) <= 1
    pool = pool_of(prepared, prepared, parts, None)
    if splits == (1, 2):
        assert len(pool.task) == 40
        assert torch.equal(pool.task.targets, prepared.task("val").targets)
    elif holds_out:
        assert set(pool.task.rows.tolist()) == shares[1]
    else:
        assert pool is None


@pytest.mark.parametrize(("share", "otherwise"), [(0.95, False), (0.5, True)])
def test_a_val_split_that_follows_patterns_as_often_is_told_from_one_that_does_not(
    tmp_path, monkeypatch, share, otherwise
):
    split = np.repeat([0, 1, 2], [1600, 400, 400])
    prepared, arrays = prepared_of(tmp_path, n=2400, split=split)
    rng = np.random.default_rng(0)
    follows, seen = rng.random(1600) < 0.95, rng.random((400, 1)) < share
    monkeypatch.setattr(type(prepared), "patterns", lambda *_: torch.from_numpy(seen).float())
    ranking = ranking_of(arrays["y"][:1600], follows)
    assert val_is_drawn_otherwise(prepared, ranking) is otherwise
    assert not val_is_drawn_otherwise(prepared, None)
    parts = split_training(prepared.samples, 0, True, otherwise)
    assert len(parts.select) == (320 if otherwise else 0)
    pool = pool_of(prepared, prepared, parts, ranking)
    assert torch.equal(pool.task.targets, prepared.task("val").targets)
    drawn = drawn_of(prepared, parts, ranking)
    assert (drawn is not None) == otherwise
    if drawn is not None:
        assert drawn.stages.flatten().tolist() == follows[parts.select].tolist()


def test_without_a_val_split_the_least_spurious_held_out_third_decides(tmp_path, network):
    split = np.repeat([0, 2], [200, 40])
    prepared, arrays = prepared_of(tmp_path, split=split, cue=None)
    labels = arrays["y"][:200]
    rank = np.empty(200, dtype=np.int64)
    for c in (0, 1):
        rank[labels == c] = np.random.default_rng(c).permutation((labels == c).sum())
    selector, parts = selector_of(prepared, ranking=ranking_of(labels, rank=rank))
    assert selector.criterion == "discovered groups"
    held, ranks = labels[parts.select], rank[parts.select]
    last = np.zeros(len(held), dtype=bool)
    for c in (0, 1):
        members = np.flatnonzero(held == c)
        last[members[np.argsort(ranks[members])][-round(len(members) / 3) :]] = True
    tell(selector, network, 0, np.where(last, 1 - held, held))  # two thirds are right
    tell(selector, network, 1, np.where(last, held, 1 - held))
    first, second = (row["balanced_accuracy"] for row in selector.rows)
    assert first == second == 50.0  # four groups, two of them wholly right


@pytest.mark.parametrize("method", ["auto", "sebra", "erm", "resample"])
def test_attributes_change_no_model_unless_that_is_asked_for(tmp_path, method):
    arrays = miniatures.features(n=360)
    rng = np.random.default_rng(0)
    models = []
    for k, cue in enumerate((arrays["cue"], rng.permutation(arrays["cue"]), None)):
        given = arrays | {"cue": cue}
        (tmp_path / str(k)).mkdir()
        file = tmp_path / str(k) / "x.npz"
        np.savez(file, **{name: v for name, v in given.items() if v is not None})
        settings = ("epochs=3",) if method == "sebra" else ()
        run = debias(Source(str(file), device="cpu"), DebiasOptions(method, None, settings))
        models.append(run.model.network.state_dict())
        assert run.metrics["selection"]["criterion"] != "groups"
    for other in models[1:]:
        assert all(torch.equal(v, other[k]) for k, v in models[0].items())


def test_true_groups_change_the_model_that_is_kept_where_that_is_asked_for(tmp_path):
    file = tmp_path / "x.npz"
    np.savez(file, **miniatures.features(n=360))
    options = DebiasOptions("sebra", None, ("epochs=3",), select="groups")
    run = debias(Source(str(file), device="cpu"), options)
    assert run.metrics["selection"]["criterion"] == "groups"
    assert all("worst_group" in row for row in run.history)


def test_a_last_step_stands_however_epochs_scored():
    """As DFR's last layer: selection describes the model that is returned."""
    scores = iter([80.0, 90.0, 40.0])
    selector = Selector(lambda net: (next(scores), {}), "any")
    network = Answers()
    for epoch in (0, 1):
        network.said[0] = epoch
        selector.epoch(epoch, network, 0.0)
    assert selector.best_epoch == 1
    network.said[0] = 2
    selector.settle(2, network, 0.0)
    found = _selection(selector)
    assert (found["best_epoch"], found["score"]) == (2, 40.0)
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

    monkeypatch.setattr(disparity, "predicted_classes", answers)
    found = disparity.subset_accuracy(prepared, np.arange(60), Session())
    assert 1 < disparity.PD_LAST_EPOCHS < 20
    assert found == pytest.approx(np.mean(seen[-disparity.PD_LAST_EPOCHS :]))
