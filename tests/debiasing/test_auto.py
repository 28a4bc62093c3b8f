"""It mends what follows a pattern, within the budget, and leaves alone what has none."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from debiasing.test_heads import calibration_error, task_of
from debiasing.toys import SETTINGS, accuracy, features, images
from sebra.debiasing import auto as module
from sebra.debiasing.auto import BALANCES, Auto, AutoConfig
from sebra.debiasing.choosing import Jury
from sebra.debiasing.erm import Erm, TrainConfig
from sebra.debiasing.method import Help, Pool
from sebra.debiasing.model import Model
from sebra.debiasing.selection import Selector
from sebra.engine.session import Session
from sebra.workflows.debias import DebiasOptions, debias
from sebra.workflows.prepared import Source
from sebra_tools.export import export


def biased(n, share, seed):
    """Two classes; one loud column goes with the class but for `share`, six quiet ones always."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    cue = np.where(rng.random(n) < share, 1 - y, y)
    x = rng.normal(size=(n, 12)).astype(np.float32)
    x[:, 0] = 3 * (2 * cue - 1) + 0.5 * x[:, 0]
    x[:, 1:7] += 0.6 * (2 * y - 1)[:, None]
    return x, y, cue


def written(file, share=0.05, n=1200, seed=0):
    """Training samples with the pattern; a test split in which it is broken as often as not."""
    x, y, cue = biased(n, share, seed)
    x_test, y_test, cue_test = biased(800, 0.5, seed + 1)
    split = np.repeat([0, 2], [n, 800])
    given = {"X": np.r_[x, x_test], "y": np.r_[y, y_test], "cue": np.r_[cue, cue_test]}
    np.savez(file, split=split, **given)
    return str(file)


def run(file, *settings):
    return debias(Source(file, device="cpu"), DebiasOptions("auto", None, settings))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """One run on a column that 95 % of the samples follow."""
    file = written(tmp_path_factory.mktemp("auto") / "x.npz")
    return file, run(file, "budget=10")


def test_a_planted_pattern_is_found_and_the_worst_group_gains(planted):
    _, found = planted
    assert found.metrics["choice"]["kept"] == "debiased"
    assert found.metrics["choice"]["patterns"] == 1
    assert found.metrics["selection"]["criterion"] == "discovered groups"
    plain, kept = found.metrics["plain"], found.metrics["evaluation"]
    assert plain["split"] == kept["split"] == "test"
    assert kept["worst_group"] > plain["worst_group"] + 5
    assert any("pattern(s) found" in note for note in found.metrics["notes"])


def test_a_budget_is_what_new_samples_lose_at_most(planted):
    """Samples drawn like the training set: the smaller the budget, the smaller the loss."""
    file, _ = planted
    x, y, cue = biased(4000, 0.05, 9)
    told = {}
    for budget in (0, 1, 3, 10):
        model = run(file, f"budget={budget}").model
        right = model.probabilities(x).argmax(1) == y
        told[budget] = 100 * right.mean(), 100 * right[cue != y].mean()
    plain = 100 * (erm_of(file).probabilities(x).argmax(1) == y).mean()
    ordinary = [told[b][0] for b in told]
    broken = [told[b][1] for b in told]
    assert all(b < a + 0.2 for a, b in pairwise(ordinary))  # two tenths: eight samples
    assert ordinary[-1] < ordinary[0]
    assert broken == sorted(broken)
    assert broken[-1] > broken[0]
    for budget, (accuracy_, _) in told.items():
        assert plain - accuracy_ <= budget + 1  # a point for chance


def erm_of(file):
    return debias(Source(file, device="cpu"), DebiasOptions("erm")).model


def test_no_candidate_over_the_budget_is_kept(planted, monkeypatch):
    file, _ = planted
    seen = []
    choose = Jury.choose

    def noted(self, plain, ways, budget):
        place = choose(self, plain, ways, budget)
        kept = plain if place is None else ways[place[0]][place[1]]
        seen.append((budget, self.cost(self.right(plain), self.right(kept))))
        return place

    monkeypatch.setattr(Jury, "choose", noted)
    for budget in (0.0, 0.5, 2.0):
        run(file, f"budget={budget}")
    assert [s[0] for s in seen] == [0.0, 0.5, 2.0]
    assert all(cost <= budget for budget, cost in seen)


def test_without_a_pattern_it_is_plain_training_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    x = rng.normal(size=(600, 8)).astype(np.float32)
    x[:, :3] += 2 * np.eye(3, dtype=np.float32)[y]
    file = tmp_path / "x.npz"
    np.savez(file, X=x, y=y)
    found = run(str(file))
    choice = found.metrics["choice"]
    assert (choice["kept"], choice["patterns"], choice["balance"]) == ("plain", 0, 0.0)
    assert found.metrics["plain"] == found.metrics["evaluation"]
    assert any("plain training is kept" in note for note in found.metrics["notes"])
    plain = erm_of(str(file)).network.state_dict()
    assert all(torch.equal(v, plain[k]) for k, v in found.model.network.state_dict().items())


def test_without_a_ranking_it_is_plain_training_over_features():
    toy = features()
    help = Help(Selector(None, "last epoch"))
    ours = Auto(AutoConfig(hidden=0)).fit(toy.train, help, Session()).state_dict()
    plain = Erm(TrainConfig(hidden=0)).fit(toy.train, help, Session()).state_dict()
    assert all(torch.equal(v, plain[k]) for k, v in ours.items())


def test_probabilities_are_calibrated_saved_and_exported_alike(planted, tmp_path):
    """The temperature is inside the last layer, so whatever runs the model has it."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    _, found = planted
    x, y, _ = biased(4000, 0.05, 9)
    found.model.save(tmp_path / "run")
    saved = Model.load(tmp_path / "run").probabilities(x)
    told = export(found.model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    (exported,) = session.run(None, {told["input"]["name"]: x})
    np.testing.assert_allclose(saved, exported, atol=1e-4)
    errors = [calibration_error(p, y) for p in (saved, exported)]
    assert max(errors) < 0.04
    assert errors[0] == pytest.approx(errors[1], abs=1e-3)


@cache
def whole():
    """One fine-tuning of both networks that nothing ended."""
    method, toy = Auto(AutoConfig(**SETTINGS["images"], budget=20.0)), images()
    return method.fit(toy.train, toy.help(method.needs), Session()), method.choice


def test_networks_are_fine_tuned_twice_and_pictures_gain():
    toy = images()
    network, choice = whole()
    assert choice.patterns == 1
    held = toy.held.subset(toy.held_conflicting)
    assert accuracy(network, held) >= accuracy(choice.plain, held)
    assert accuracy(network, toy.train) > 0.7


def test_it_resumes_to_the_same_model_between_its_trainings(tmp_path, monkeypatch):
    expected, choice = whole()
    config = AutoConfig(**SETTINGS["images"], budget=20.0)
    toy = images()

    def stopped(*_):
        raise KeyboardInterrupt

    fit = module.Erm.fit

    def first_alone(self, task, help, session):
        return stopped() if self.config.start == "probe" else fit(self, task, help, session)

    def second_alone(self, task, help, session):
        return fit(self, task, help, session) if self.config.start == "probe" else stopped()

    with monkeypatch.context() as patch:
        patch.setattr(module.Erm, "fit", first_alone)
        method = Auto(config)
        with pytest.raises(KeyboardInterrupt):
            method.fit(toy.train, toy.help(method.needs), Session(tmp_path, every_seconds=0))
    monkeypatch.setattr(module.Erm, "fit", second_alone)  # the first is not trained again
    method = Auto(config)
    resumed = method.fit(toy.train, toy.help(method.needs), Session(tmp_path, resume=True))
    theirs = resumed.state_dict()
    assert all(torch.equal(v, theirs[k]) for k, v in expected.state_dict().items())
    assert method.choice.to_dict() == choice.to_dict()


def test_the_pool_is_never_trained_on(monkeypatch):
    toy = images()
    trained = []
    fit = module.Erm.fit

    def noted(self, task, help, session):
        trained.append(task.rows)
        return fit(self, task, help, session)

    monkeypatch.setattr(module.Erm, "fit", noted)
    method = Auto(AutoConfig(**{**SETTINGS["images"], "epochs": 1}))
    help = toy.help(method.needs)
    method.fit(toy.train, replace(help, pool=replace(help.pool, stages=None)), Session())
    assert len(trained) == 2
    for rows in trained:
        assert set(rows.tolist()).isdisjoint(help.pool.task.rows.tolist())
    assert method.choice.patterns == 0


def test_what_a_model_costs_is_told_by_samples_drawn_like_the_training_set():
    toy = images()
    pool, n = toy.pool(), len(toy.held)
    half = torch.arange(n) % 2 == 0
    odd, drawn = (
        Pool(pool.task.subset(rows.nonzero().squeeze(1)), pool.stages[rows])
        for rows in (half, ~half)
    )
    alone = module.Judges.held_out(toy.train, odd, None)
    assert alone.ordinary.tolist() == [1.0] * len(odd.task)
    both = module.Judges.held_out(toy.train, odd, drawn)
    assert both.ordinary.tolist() == [0.0] * len(odd.task) + [1.0] * len(drawn.task)
    assert both.y.tolist() == torch.cat([odd.task.targets, drawn.task.targets]).tolist()
    right = both.jury.right(torch.eye(toy.train.classes)[both.y])
    wrong_in_val = right * both.ordinary.numpy()
    assert both.jury.cost(right, wrong_in_val) == 0
    assert both.jury.cost(right, right - wrong_in_val) == pytest.approx(100)


def test_the_free_network_is_the_plain_one_where_it_is_clearly_better(monkeypatch):
    toy = images()
    config = AutoConfig(**{**SETTINGS["images"], "epochs": 2})
    for clear in (True, False):
        told = []
        monkeypatch.setattr(
            module.Judges,
            "much_better",
            lambda self, *networks, told=told, clear=clear: told.extend(networks) or clear,
        )
        method = Auto(config)
        method.fit(toy.train, replace(toy.help(method.needs), guide=None), Session())
        kept = told[0 if clear else 1]
        ours, theirs = method.choice.plain.body.state_dict(), kept.body.state_dict()
        assert all(torch.equal(v.cpu(), theirs[k].cpu()) for k, v in ours.items())


def test_the_near_network_lies_half_way_between_a_probe_and_its_training(monkeypatch):
    toy = images()
    ends = {}
    fit = module.Erm.fit

    def noted(self, task, help, session):
        ends["trained"] = {
            k: v.clone() for k, v in fit(self, task, help, session).state_dict().items()
        }
        network = task.network()
        network.load_state_dict(ends["trained"])
        return network

    monkeypatch.setattr(module.Erm, "fit", noted)
    start = toy.train.network()
    module.set_probe(start, toy.train)
    config = TrainConfig(**{**SETTINGS["images"], "epochs": 2})
    near = module._near(config, toy.train, toy.help(frozenset()), Session()).state_dict()
    for name, value in start.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(near[name], (value + ends["trained"][name]) / 2)


def test_the_cost_is_told_by_training_samples_alone_over_features():
    toy = features()
    method = Auto(AutoConfig())
    help = toy.help(method.needs)
    judges = module.Judges.all_of(toy.train, help.guide, help.pool)
    n = len(toy.train)
    assert len(judges.y) == n + len(help.pool.task)
    assert judges.ordinary[:n].eq(1).all()
    assert judges.ordinary[n:].eq(0).all()


def test_two_samples_that_break_a_pattern_are_a_group_and_one_is_not():
    toy = features()
    help = toy.help(Auto(AutoConfig()).needs)
    judges = module.Judges.all_of(toy.train, help.guide, None)
    for few, groups in ((2, 2), (1, 1)):
        stages = torch.ones(len(judges.y), 1)
        stages[judges.y.eq(0).nonzero()[:few]] = 0
        counted = replace(judges, stages=stages).groups[judges.y == 0]
        assert len(counted.unique()) == groups


def test_a_way_goes_beyond_its_end_as_long_as_rare_groups_are_told_better():
    """With many columns the few that break a pattern are learned by heart."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    cue = np.where(rng.random(400) < 0.05, 1 - y, y)
    x = rng.normal(size=(400, 400)).astype(np.float32)
    x[:, :40] += 2 * cue[:, None]
    x[:, 40:240] += 0.5 * y[:, None]
    task, labels = task_of(x, y), torch.from_numpy(y)
    stages = torch.from_numpy(y == cue).float()[:, None]
    every = torch.arange(400)
    judges = module.Judges((task,), labels, stages, torch.ones(400), every, 0, 2)
    _, ways = module._heads_over_features(task, judges)
    kept = set()
    for way in ways:
        shares = [one.balance for one in way]
        assert shares == list(BALANCES[: len(shares)])
        # Logits lie on a line, so what would have come next is known.
        half, end = (way[BALANCES.index(share)].logits for share in (0.5, 1.0))
        beyond = [s for s in BALANCES if s >= 1]
        told = [judges.jury.surprise(torch.lerp(half, end, 2 * s - 1)) for s in beyond]
        falls = next((k for k in range(1, len(told)) if told[k] >= told[k - 1]), len(told))
        assert shares[-1] == beyond[falls - 1]
        kept.add(shares[-1])
    assert len(kept) > 1  # some ways end at once, others do not
