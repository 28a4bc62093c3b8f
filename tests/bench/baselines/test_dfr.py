from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from debiasing.toys import SETTINGS, accuracy, features, fit, images
from sebra.debiasing.erm import Erm
from sebra.errors import UsageError
from sebra_bench.baselines import dfr as module
from sebra_bench.baselines.dfr import Dfr, balanced_subset, choose_strength, least_spurious


def test_subsets_are_exactly_balanced_and_random():
    groups = torch.tensor([0] * 30 + [1] * 4 + [2] * 11)
    generator = torch.Generator().manual_seed(0)
    one, two = balanced_subset(groups, generator), balanced_subset(groups, generator)
    for index in (one, two):
        assert torch.bincount(groups[index]).tolist() == [4, 4, 4]
        assert len(index.unique()) == len(index)
    assert set(one.tolist()) != set(two.tolist())


@pytest.mark.parametrize("on", ["groups", "ranking"])
def test_every_regression_sees_a_balanced_set(monkeypatch, on):
    toy = features()
    seen = []
    regression = module.logistic_regression

    def watched(x, y, classes, c, l1):
        seen.append((x, y, c))
        return regression(x, y, classes, c, l1)

    monkeypatch.setattr(module, "logistic_regression", watched)
    monkeypatch.setattr(module, "RETRAINS", 3)
    settings = {**SETTINGS["features"], "epochs": 1, "on": on, "c": 0.5}
    method, network = fit(Dfr, toy, **settings)
    assert len(seen) == 3
    _, held, groups = method.split(toy.train, toy.help(method.needs))
    smallest = int(torch.bincount(groups).min())
    per_class = smallest * len(groups.unique()) // 3
    for _, y, c in seen:
        assert torch.bincount(y).tolist() == [per_class] * 3
        assert c == 0.5
    if on == "groups":
        z = held.batch(torch.arange(len(held)))
        x = (network.embed(z) - network.embed(z).mean(0)) / network.embed(z).std(0)
        for fitted, _, _ in seen:
            match = torch.cdist(fitted, x).argmin(1)  # which held-out sample is this row?
            assert torch.bincount(groups[match]).tolist() == [smallest] * len(groups.unique())


def test_coefficients_are_averaged_and_work_on_raw_features(monkeypatch):
    toy = features()
    answers = iter([(torch.eye(3, 8), torch.ones(3)), (3 * torch.eye(3, 8), torch.zeros(3))])
    monkeypatch.setattr(module, "logistic_regression", lambda *_, **__: next(answers))
    monkeypatch.setattr(module, "RETRAINS", 2)
    _, network = fit(Dfr, toy, **{**SETTINGS["features"], "epochs": 1, "c": 1.0})
    x = toy.held.batch(torch.arange(len(toy.held)))
    with torch.no_grad():
        z = network.embed(x)
        expected = 2 * ((z - z.mean(0)) / z.std(0))[:, :3] + 0.5
        assert torch.allclose(network(x), expected, atol=1e-4)


@pytest.mark.parametrize(("make", "kind"), [(features, "features"), (images, "images")])
def test_retraining_mends_the_last_layer(make, kind):
    toy = make(share=0.04)
    settings = {**SETTINGS[kind], "epochs": 4}
    own = {"c": 0.1}
    held = toy.held.subset(toy.held_conflicting)
    retrained = accuracy(fit(Dfr, toy, **settings, **own)[1], held)
    assert retrained > accuracy(fit(Erm, toy, **settings)[1], held) + 0.1


def test_least_spurious_of_every_class_by_share():
    targets = torch.tensor([0] * 10 + [1] * 4 + [2])
    rank = torch.cat([torch.arange(10), torch.tensor([3, 2, 1, 0]), torch.tensor([0])])
    held = least_spurious(rank, targets, 0.3)
    assert held.nonzero().flatten().tolist() == [7, 8, 9, 10, 14]
    gaps = least_spurious(3 * rank + 50, targets, 0.3)  # a task may lack some ranked samples
    assert torch.equal(gaps, held)


def test_held_out_samples_of_the_ranking_are_not_trained_on(monkeypatch):
    monkeypatch.setattr(module, "SHARE", 0.15)
    toy = features()
    method = Dfr(Dfr.config_class(on="ranking"))
    assert method.needs == {"ranking"}
    plain, held, groups = method.split(toy.train, toy.help(method.needs))
    assert set(plain.rows.tolist()).isdisjoint(held.rows.tolist())
    assert len(plain) + len(held) == len(toy.train)
    assert toy.conflicting[held.rows].double().mean() > 0.8
    assert torch.equal(groups, held.targets)


def test_the_strength_is_the_best_of_the_grid_for_the_worst_group():
    """A feature that helps the large groups alone is left out by a strong penalty."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    sign = (2.0 * y - 1)[:, None]
    x = torch.cat([sign + torch.randn(400, 1, generator=generator), torch.randn(400, 60)], 1)
    c = choose_strength(x, y, y, 2, generator)
    assert c in module.STRENGTHS
    assert c < 1.0


def test_a_class_without_held_out_samples_is_named():
    toy = features()
    method = Dfr(Dfr.config_class())
    help = toy.help(method.needs)
    some = toy.held.targets != 1
    help = replace(help, heldout=toy.held.subset(some), heldout_groups=help.heldout_groups[some])
    with pytest.raises(UsageError, match="class number 1"):
        method.split(toy.train, help)
