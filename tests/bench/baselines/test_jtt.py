from __future__ import annotations

import pytest
import torch

from debiasing.toys import SETTINGS, accuracy, features, fit
from sebra.debiasing import method as module
from sebra.engine.session import Session, Silent
from sebra_bench.baselines.jtt import Jtt, upsampled

JTT = {**SETTINGS["features"], "lr": 0.02, "epochs": 3, "identify_epochs": 2, "upsample": 7}


def test_upsampled_shows_errors_so_many_times_and_the_rest_once():
    errors = torch.tensor([False, True, False, True])
    assert torch.bincount(upsampled(errors, 5)).tolist() == [1, 5, 1, 5]


@pytest.fixture
def orders(monkeypatch):
    """The sample indices of every epoch that is trained."""
    seen = []
    train_epoch = module.train_epoch

    def watched(step, order, generator):
        seen.append(order.flatten())
        return train_epoch(step, order, generator)

    monkeypatch.setattr(module, "train_epoch", watched)
    return seen


def test_errors_are_the_conflicting_samples_and_are_upsampled(orders):
    toy = features(noise=9.0)  # so blurred that the first training sees the cue alone
    method, _ = fit(Jtt, toy, **{**JTT, "lr": 0.1})
    assert method.errors.tolist() == toy.conflicting.tolist()
    assert len(orders) == 2 + 3
    for order in orders[2:]:
        times = torch.bincount(order, minlength=len(toy.train))
        # The last batch is filled up from the front, so a few samples come once more.
        extra = times - torch.where(method.errors, 7, 1)
        assert (extra >= 0).all()
        assert extra.sum() < 32


def test_equal_draws_keep_the_proportions_and_the_length(orders):
    toy = features()
    method, _ = fit(Jtt, toy, **JTT, draws="equal")
    drawn = torch.cat(orders[2:])
    assert abs(len(drawn) - 3 * len(toy.train)) < 3 * 32
    expected = 7 * int(method.errors.sum()) / len(upsampled(method.errors, 7))
    assert method.errors[drawn].double().mean().item() == pytest.approx(expected, abs=0.06)


def test_better_than_plain_training_where_the_cue_misleads():
    toy = features(share=0.1, noise=0.8)
    held = toy.held.subset(toy.held_conflicting)
    robust = accuracy(fit(Jtt, toy, **{**JTT, "upsample": 15})[1], held)
    plain = {**JTT, "upsample": 1}  # errors count like the others
    assert robust > accuracy(fit(Jtt, toy, **plain)[1], held) + 0.1


def test_says_so_when_there_are_no_errors():
    toy = features(classes=2, share=0.0)
    session = Session()
    fit(Jtt, toy, session, **{**JTT, "identify_epochs": 8})
    assert any("no errors" in note for note in session.notes)


class StopsIn(Silent):
    """Kills the run in an epoch of the first training."""

    def __init__(self):
        self.phase = ""

    def start(self, phase, total):
        self.phase = phase

    def advance(self, done, images=0, note=""):
        if self.phase == "identify" and done == 2:
            raise KeyboardInterrupt


def test_resumes_inside_the_first_training(tmp_path, orders):
    toy = features()
    settings = {**JTT, "identify_epochs": 3}
    whole, network = fit(Jtt, toy, **settings)
    with pytest.raises(KeyboardInterrupt):
        fit(Jtt, toy, Session(tmp_path, every_seconds=0, progress=StopsIn()), **settings)
    orders.clear()
    again, resumed = fit(Jtt, toy, Session(tmp_path, resume=True), **settings)
    assert len(orders) == 2 + 3  # the first epoch was not repeated
    assert torch.equal(again.errors, whole.errors)
    for name, value in network.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
