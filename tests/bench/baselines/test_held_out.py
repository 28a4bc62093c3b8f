"""What is fitted to held-out samples, and which those are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from debiasing.toys import SETTINGS, accuracy, features, fit, images
from sebra.debiasing.erm import Erm
from sebra.debiasing.last_layer import embedded, head_of, standardised_head
from sebra.debiasing.method import Help
from sebra.debiasing.model import Model
from sebra.debiasing.selection import Selector
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra_bench.baselines import dpe, held_out
from sebra_bench.baselines.afr import Afr, misjudged
from sebra_bench.baselines.cbllr import Cbllr
from sebra_bench.baselines.dpe import Dpe, class_balanced, likeness
from sebra_bench.baselines.held_out import parted

LAST_LAYERS = {"afr": Afr, "cbllr": Cbllr, "dpe": Dpe}


def test_a_fifth_of_every_class_is_held_out_and_trains_nothing():
    task = features(train=150).train
    first, held = parted(task)
    assert sorted(torch.cat([first.rows, held.rows]).tolist()) == task.rows.tolist()
    assert torch.bincount(held.targets).tolist() == [10, 10, 10]


@pytest.mark.parametrize("cls", LAST_LAYERS.values(), ids=LAST_LAYERS)
def test_only_the_last_layer_changes_and_only_by_held_out_samples(cls, monkeypatch):
    toy, seen = images(), {}
    refit = cls.refit

    def watched(self, network, held, session):
        seen["before"] = {k: v.clone() for k, v in network.state_dict().items()}
        seen["held"] = held
        refit(self, network, held, session)

    monkeypatch.setattr(cls, "refit", watched)
    _, network = fit(cls, toy, **{**SETTINGS["images"], "epochs": 1})
    after = network.state_dict()
    for name, value in seen["before"].items():
        if not name.startswith("head."):
            assert torch.equal(value, after[name]), name
    assert set(seen["held"].rows.tolist()) < set(toy.train.rows.tolist())
    method = cls(cls.config_class(**{**SETTINGS["images"], "epochs": 1}, on="val"))
    method.fit(toy.train, Help(Selector(None, "last"), pool=toy.pool()), Session())
    assert seen["held"] is toy.pool().task or seen["held"].rows.equal(toy.held.rows)


def test_without_samples_that_choose_there_is_nothing_to_fit_to():
    toy = features()
    method = Afr(Afr.config_class(on="val"))
    with pytest.raises(UsageError, match="--method afr: needs samples that choose"):
        method.fit(toy.train, Help(Selector(None, "last")), Session())


def test_methods_share_the_first_training(monkeypatch):
    toy, fits = images(), []
    whole = Erm.fit

    def counted(self, task, help, session):
        fits.append(task)
        return whole(self, task, help, session)

    monkeypatch.setattr(Erm, "fit", counted)
    settings = {**SETTINGS["images"], "epochs": 1}
    for cls in LAST_LAYERS.values():
        fit(cls, toy, **settings)
    assert len(fits) == 1
    fit(Cbllr, toy, **{**settings, "lr": 3e-3})
    fit(Cbllr, replace(toy, train=replace(toy.train, seed=7)), **settings)
    assert len(fits) == 3


def test_afr_weighs_what_the_first_layer_gets_wrong():
    logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [1.0, 0.0], [0.0, 4.0], [2.0, 4.0]])
    y = torch.tensor([0, 0, 0, 1, 1])
    p = logits.softmax(1)[torch.arange(5), y]
    raw = [float(torch.exp(-3.0 * p[i])) / (3 if i < 3 else 2) for i in range(5)]
    expected = torch.tensor(raw) / sum(raw)
    torch.testing.assert_close(misjudged(logits, y, 3.0), expected)


def test_afr_stays_at_the_first_layer_where_the_penalty_is_great():
    toy = features(noise=2.0)
    settings = SETTINGS["features"]
    near = fit(Afr, toy, **settings, penalty=1e6)[1]
    first = held_out.plain(parted(toy.train)[0], Afr.config_class(**settings), Session())
    _, mean, std = embedded(near, parted(toy.train)[1])
    ours, theirs = (standardised_head(*head_of(n), mean, std)[:-1] for n in (near, first))
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-2)
    far = standardised_head(*head_of(fit(Afr, toy, **settings, penalty=1e-3)[1]), mean, std)[:-1]
    assert float((far - theirs).norm()) > 10 * float((ours - theirs).norm())


def test_afr_is_better_than_its_first_layer_where_the_cue_misleads():
    toy = features(train=1200, share=0.06, noise=1.0)
    held = toy.held.subset(toy.held_conflicting)
    plain = held_out.plain(parted(toy.train)[0], Afr.config_class(), Session())
    found = fit(Afr, toy, gamma=10.0, penalty=1e-3)[1]
    assert accuracy(found, held) > accuracy(plain, held) + 0.1


def test_prototypes_of_a_class_are_drawn_in_balance():
    targets = torch.tensor([0] * 30 + [1] * 5 + [2] * 9)
    rows = class_balanced(targets, torch.Generator().manual_seed(0))
    assert torch.bincount(targets[rows]).tolist() == [5, 5, 5]


def test_likeness_is_that_of_a_loop():
    p = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1))
    pairs = [
        F.cosine_similarity(p[i, c], p[j, c], dim=0).abs()
        for i in range(3)
        for j in range(3)
        for c in range(2)
        if i != j
    ]
    torch.testing.assert_close(likeness(p), torch.stack(pairs).mean())


def test_diversity_makes_members_less_alike(monkeypatch):
    monkeypatch.setattr(dpe, "_MEMBERS", 4)

    def alike(diversity):
        found = fit(Dpe, features(), **SETTINGS["features"], diversity=diversity)[1]
        return float(likeness(found.head.prototypes.detach()))

    assert alike(3.0) < 0.7 * alike(0.0)


def test_predictions_are_the_mean_of_the_members(monkeypatch, tmp_path):
    monkeypatch.setattr(dpe, "_MEMBERS", 3)
    toy = features()
    network = fit(Dpe, toy, **SETTINGS["features"])[1]
    x = toy.held.batch(torch.arange(6))
    z, head = network.embed(x), network.head
    shares = torch.zeros(6, 3)
    for prototypes, scale in zip(head.prototypes, head.scales, strict=True):
        far = torch.stack(
            [(F.normalize(z, dim=1) - F.normalize(p, dim=0)).norm(dim=1) for p in prototypes], 1
        )
        shares += (-scale * far).softmax(1) / 3
    torch.testing.assert_close(network(x).softmax(1), shares, rtol=1e-3, atol=1e-4)
    Model(network, ("a", "b", "c"), (network.spec,)).save(tmp_path)
    loaded = Model.load(tmp_path, "cpu")
    torch.testing.assert_close(loaded.network(x), network(x))
