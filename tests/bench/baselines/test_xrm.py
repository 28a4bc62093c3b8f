from __future__ import annotations

import torch

from debiasing.toys import SETTINGS, accuracy, features, fit
from sebra_bench.baselines.jtt import Jtt
from sebra_bench.baselines.xrm import Xrm, flip_chance

XRM = {**SETTINGS["features"], "lr": 0.1, "epochs": 4, "identify_epochs": 6}


def test_a_guess_flips_no_label_and_certainty_flips_every_one():
    logits = torch.tensor([[0.0, 0.0, 0.0], [50.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    p = float(logits[2].softmax(0)[0])
    expected = torch.tensor([0.0, 1.0, (p - 1 / 3) * 1.5])
    torch.testing.assert_close(flip_chance(logits), expected, atol=1e-6, rtol=1e-5)


def test_held_out_mistakes_are_the_conflicting_samples():
    toy = features(noise=9.0)  # so blurred that the twins see the cue alone
    method, _ = fit(Xrm, toy, **XRM)
    assert method.mistakes.tolist() == toy.conflicting.tolist()


def test_labels_that_a_network_could_learn_by_heart_are_still_mistakes():
    """Each twin trains on its half only: what is asked is what the other one says."""
    toy = features(noise=1.5)
    method, _ = fit(Xrm, toy, **{**XRM, "identify_epochs": 30, "hidden": 64})
    found = method.mistakes
    assert float(found[toy.conflicting].float().mean()) > 0.8
    assert float(found[~toy.conflicting].float().mean()) < 0.1


def test_better_than_plain_training_where_the_cue_misleads():
    toy = features(share=0.1, noise=0.8)
    held = toy.held.subset(toy.held_conflicting)
    robust = accuracy(fit(Xrm, toy, **XRM)[1], held)
    plain = {**SETTINGS["features"], "lr": 0.1, "epochs": 4, "upsample": 1}
    assert robust > accuracy(fit(Jtt, toy, **plain)[1], held) + 0.1
