from __future__ import annotations

import torch

from debiasing.toys import SETTINGS, accuracy, features, fit
from sebra.debiasing.erm import Erm
from sebra.engine.session import Session
from sebra_bench.baselines.ccdb import FgCcdb, cell_weights


def test_weighted_predictions_say_nothing_about_the_label():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (900,), generator=generator)
    said = torch.where(torch.rand(900, generator=generator) < 0.9, y, (y + 1) % 3)
    said = torch.where(torch.rand(900, generator=generator) < 0.05, (y + 2) % 3, said)
    weights = cell_weights(y, said, 3)
    mass = torch.zeros(3, 3, dtype=torch.float64)
    for label, prediction, w in zip(y.tolist(), said.tolist(), weights.tolist(), strict=True):
        mass[label, prediction] += w
    mass /= mass.sum()
    overall = torch.bincount(said) / 900
    for row in mass:
        torch.testing.assert_close(row * 3, overall.double(), rtol=1e-5, atol=1e-7)


def test_a_rare_cell_is_no_single_sample_set():
    y = torch.tensor([0] * 5000 + [1] * 5000)
    said = y.clone()
    said[0] = 1
    weights = cell_weights(y, said, 2)
    assert float(weights.max()) == 100.0


def test_what_was_right_trains_the_next_stage():
    toy = features(noise=9.0)
    method = FgCcdb(FgCcdb.config_class(**{**SETTINGS["features"], "lr": 0.2}, stages=3))
    said = method._cheat(toy.train, Session())
    assert ((said != toy.train.targets) == toy.conflicting).float().mean() > 0.98


def test_better_than_plain_training_where_the_cue_misleads():
    toy = features(share=0.08, noise=1.0)
    held = toy.held.subset(toy.held_conflicting)
    settings = {**SETTINGS["features"], "lr": 0.2}
    robust = accuracy(fit(FgCcdb, toy, **settings, stages=3)[1], held)
    assert robust > accuracy(fit(Erm, toy, **settings)[1], held) + 0.1
