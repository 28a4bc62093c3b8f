"""Last layers that are fitted again to balanced held-out samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from debiasing.toys import SETTINGS, accuracy, features, fit, images
from sebra.debiasing.erm import Erm
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra_bench.baselines import dfr as module
from sebra_bench.baselines.dfr import Dfr


@pytest.mark.parametrize("on", ["groups", "patterns"])
def test_groups_count_alike_whatever_their_size(monkeypatch, on):
    toy, seen = features(), []
    real = module.fitted

    def watched(x, y, classes, weights, strength):
        seen.append((y, weights))
        return real(x, y, classes, weights, strength)

    monkeypatch.setattr(module, "fitted", watched)
    fit(Dfr, toy, **SETTINGS["features"], on=on)
    ((y, weights),) = seen
    groups = y * 2 + toy.held_conflicting.long()
    mass = torch.bincount(groups, weights.double())
    assert len(y) == len(toy.held)
    assert torch.allclose(mass, mass.mean().expand_as(mass), rtol=1e-4)


@pytest.mark.parametrize("on", ["groups", "patterns"])
@pytest.mark.parametrize(("make", "kind"), [(features, "features"), (images, "images")])
def test_retraining_mends_the_last_layer(make, kind, on):
    toy = make(share=0.04, **({"noise": 1.5} if kind == "features" else {}))
    settings = {**SETTINGS[kind], "epochs": 4}
    held = toy.held.subset(toy.held_conflicting)
    retrained = accuracy(fit(Dfr, toy, **settings, on=on)[1], held)
    assert retrained > accuracy(fit(Erm, toy, **settings)[1], held) + 0.1


def test_patterns_need_a_ranking_and_no_groups():
    assert Dfr(Dfr.config_class(on="patterns")).needs == {"ranking"}
    assert Dfr(Dfr.config_class()).needs == {"heldout", "heldout_groups"}


def test_a_class_without_held_out_samples_is_named():
    toy = features()
    method = Dfr(Dfr.config_class())
    help = toy.help(method.needs)
    some = toy.held.targets != 1
    help = replace(help, heldout=toy.held.subset(some), heldout_groups=help.heldout_groups[some])
    with pytest.raises(UsageError, match="class number 1"):
        method.fit(toy.train, help, Session())
