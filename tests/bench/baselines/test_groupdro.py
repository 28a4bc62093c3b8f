from __future__ import annotations

import pytest

from debiasing.toys import SETTINGS, accuracy, features, fit
from sebra.debiasing.method import Trainer
from sebra.errors import UsageError
from sebra_bench.baselines import groupdro
from sebra_bench.baselines.groupdro import GroupDro
from sebra_bench.baselines.jtt import Jtt


@pytest.fixture
def group_weights(monkeypatch):
    """The final group weights of whatever is trained in the test."""
    seen = {}
    run = Trainer.run

    def watched(self, *args, **kwargs):
        seen.update(self.extra)
        return run(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "run", watched)
    return lambda: seen["group_weights"]


def test_the_worst_groups_get_the_weight(group_weights):
    toy = features(noise=1.2)
    settings = {**SETTINGS["features"], "epochs": 4, "eta": 0.1}
    method, _ = fit(GroupDro, toy, **settings)
    groups = method.groups(toy.train, toy.help(method.needs))
    weights = group_weights()
    assert weights.sum().item() == pytest.approx(1.0, abs=1e-5)
    conflicting = groups[toy.conflicting].unique()
    aligned = groups[~toy.conflicting].unique()
    assert set(conflicting.tolist()).isdisjoint(aligned.tolist())
    assert weights[conflicting].min() > weights[aligned].max()


def test_better_than_plain_training_where_the_cue_misleads():
    toy = features(share=0.04)
    held = toy.held.subset(toy.held_conflicting)
    settings = {**SETTINGS["features"], "epochs": 4}
    robust = accuracy(fit(GroupDro, toy, **settings)[1], held)
    plain = {**settings, "upsample": 1}  # the same steps, nobody counts more
    assert robust > accuracy(fit(Jtt, toy, **plain)[1], held) + 0.1


def test_batches_are_balanced_over_groups(monkeypatch):
    orders = []
    from sebra.debiasing import method as module

    train_epoch = module.train_epoch

    def watched(step, order, generator):
        orders.append(order)
        return train_epoch(step, order, generator)

    monkeypatch.setattr(module, "train_epoch", watched)
    toy = features(train=600)
    fit(GroupDro, toy, **{**SETTINGS["features"], "epochs": 1})
    (share,) = [toy.conflicting[o.flatten()].double().mean().item() for o in orders]
    assert share == pytest.approx(0.5, abs=0.08)
    assert toy.conflicting.double().mean().item() < 0.4


def test_what_it_needs_depends_on_the_configuration(monkeypatch):
    monkeypatch.setattr(groupdro, "_PARTS", 2)
    config = GroupDro.config_class
    assert GroupDro(config()).needs == {"groups"}
    over_buckets = GroupDro(config(over="buckets"))
    assert over_buckets.needs == {"ranking"}
    toy = features()
    groups = over_buckets.groups(toy.train, toy.help(over_buckets.needs))
    for g in groups.unique():
        assert len(toy.train.targets[groups == g].unique()) == 1
        assert len(toy.conflicting[groups == g].unique()) == 1  # two parts: aligned, conflicting
    with pytest.raises(UsageError, match="over"):
        config(over="stripes")
