"""Last layers over features: as good as scikit-learn's, and as sure as they are right."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import datasets
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from debiasing.toys import accuracy
from ranking.toys import task_of
from sebra.debiasing.choosing import calibrated, even
from sebra.debiasing.erm import Erm, TrainConfig
from sebra.debiasing.heads import (
    FOLDS,
    STRENGTHS,
    Examples,
    even_heads,
    fit_head,
    fitted,
    judging,
    plain_head,
    temperature,
    told,
)
from sebra.debiasing.method import Help
from sebra.debiasing.selection import Selector
from sebra.engine.logistic import logits_of
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session


def overlapping(n=3000, d=40, seed=0):
    """Classes that overlap, in many features: a head without a penalty is far too sure."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, :3] += 1.2 * np.eye(3, dtype=np.float32)[y]
    return x, y


def calibration_error(probabilities, y, bins=10):
    """The expected calibration error in fifteen lines or fewer."""
    sure, right = probabilities.max(1), probabilities.argmax(1) == y
    place = np.minimum((sure * bins).astype(int), bins - 1)
    parts = [place == b for b in range(bins)]
    return sum(abs(right[p].mean() - sure[p].mean()) * p.mean() for p in parts if p.any())


def spoken(network, task):
    with evaluating(network):
        return predict(network, task, torch.arange(len(task)))


def erm(task):
    selector = Selector(None, "last epoch")
    return Erm(TrainConfig(hidden=0)).fit(task, Help(selector), Session()), selector


@pytest.mark.parametrize("name", ["wine", "breast_cancer", "digits"])
def test_plain_training_is_as_good_as_scikit_learns_cross_validation(name):
    data = getattr(datasets, f"load_{name}")()
    x, y = data.data[:1200].astype(np.float32), data.target[:1200]
    ours, theirs = [], []
    for seed in range(2):
        split = train_test_split(x, y, test_size=0.4, random_state=seed, stratify=y)
        x_train, x_test, y_train, y_test = split
        scale = StandardScaler().fit(x_train)
        other = LogisticRegressionCV(Cs=list(STRENGTHS), cv=5, max_iter=2000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other.fit(scale.transform(x_train), y_train)
        theirs.append(100 * other.score(scale.transform(x_test), y_test))
        network, _ = erm(task_of(x_train, y_train, seed))
        ours.append(100 * accuracy(network, task_of(x_test, y_test)))
    assert np.mean(ours) >= np.mean(theirs) - 1.5


def test_plain_training_over_features_has_one_row_of_history():
    x, y = overlapping(300)
    network, selector = erm(task_of(x, y))
    (row,) = selector.rows
    task = task_of(x, y)
    assert row["loss"] == pytest.approx(float(F.cross_entropy(spoken(network, task), task.targets)))


def test_every_class_is_spread_over_the_folds_and_no_sample_tells_of_itself():
    x, y = (torch.from_numpy(a) for a in overlapping(90))
    data = Examples.of(x, y, 3, seed=0)
    for c in range(3):
        assert torch.bincount(data.fold[y == c], minlength=FOLDS).tolist() == [6] * FOLDS
    before = data.held_out(torch.ones(90), [1.0])[0]
    here = data.fold == 2
    changed = Examples(x.clone(), y.clone(), 3, data.fold)
    changed.y[here] = (y[here] + 1) % 3
    after = changed.held_out(torch.ones(90), [1.0])[0]
    assert torch.allclose(before[here], after[here])
    assert not torch.allclose(before[~here], after[~here], atol=1e-2)


def test_held_out_logits_are_those_of_a_head_fitted_to_the_other_folds():
    x, y = (torch.from_numpy(a) for a in overlapping(200))
    weights = torch.linspace(0.5, 2, 200)
    data = Examples.of(x, y, 3, seed=1)
    found = data.held_out(weights, [0.01, 1.0])[1]
    for k in range(FOLDS):
        here, there = data.fold != k, data.fold == k
        head = fitted(x[here], y[here], 3, weights[here], 1.0)
        expected = logits_of(x[there], head).softmax(1)
        assert torch.allclose(found[there].softmax(1), expected, atol=1e-2)


def test_the_strength_is_that_of_the_highest_weighted_accuracy():
    y = torch.tensor([0, 0, 0, 1])
    says_0, says_1 = (F.one_hot(torch.full((4,), c), 2).float() for c in (0, 1))
    logits = torch.stack([says_0, says_1])
    assert told(logits[0], y, torch.ones(4)) > told(logits[1], y, torch.ones(4))
    late = torch.tensor([1.0, 1.0, 1.0, 9.0])
    assert told(logits[1], y, late) > told(logits[0], y, late)
    right = F.one_hot(y, 2).float()
    assert told(5 * right, y, torch.ones(4)) > told(right, y, torch.ones(4))


def test_the_strength_that_is_found_is_the_best_of_all():
    x, y = overlapping(400)
    x, y = (x - x.mean(0)) / x.std(0), torch.from_numpy(y)
    data, ones = Examples.of(torch.from_numpy(x), y, 3, 0), torch.ones(400)
    at, tried = data.best(ones, lambda z: told(z, y, ones))
    every = data.held_out(ones, STRENGTHS)
    for logits, expected in zip(tried, every, strict=False):
        torch.testing.assert_close(logits, expected)
    assert len(tried) > at
    assert at == int(np.argmax([told(z, y, ones) for z in every]))


@pytest.mark.parametrize("helps", [True, False])
def test_more_columns_are_used_where_they_help(helps):
    """The last columns hold half of what tells the classes, or chance alone."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    x = rng.normal(size=(600, 60)).astype(np.float32)
    x[:, 0] += 2 * y
    if helps:
        x[:, 10] += 2 * y
    task = replace(task_of(x, y), core=5)
    columns = torch.from_numpy((x - x.mean(0)) / x.std(0)), torch.from_numpy(y)
    assert plain_head(*columns, task, torch.ones(600)).columns == (60 if helps else 5)
    weight = fit_head(task, torch.ones(600)).head.weight
    assert bool((weight[:, 5:] != 0).any()) == helps


def test_temperature_undoes_what_logits_were_multiplied_by():
    generator = torch.Generator().manual_seed(0)
    logits = 1.5 * torch.randn(20000, 4, generator=generator)
    y = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    for factor in (0.25, 1.0, 6.0):
        assert temperature(factor * logits, y, torch.ones(len(y))) == pytest.approx(factor, rel=0.1)


def test_what_the_network_says_is_calibrated_on_new_samples():
    x, y = overlapping(6000)
    new, target = x[600:], y[600:]
    network, _ = erm(task_of(x[:600], y[:600]))
    probabilities = spoken(network, task_of(new, target)).softmax(1).numpy()
    assert calibration_error(probabilities, target) < 0.04
    loose = fitted(*(torch.from_numpy(a[:600]) for a in (x, y)), 3, torch.ones(600), 1e3)
    raw = logits_of(torch.from_numpy(new), loose).softmax(1).numpy()
    assert calibration_error(raw, target) > 0.05  # without strength and temperature it is not


def test_weights_say_which_samples_count():
    """Half of the samples have the other half's labels swapped; weights decide whom to follow."""
    x, y = overlapping(1200)
    y = np.where(y == 2, 0, y)
    swapped = np.arange(len(y)) % 2 == 1
    given = np.where(swapped, 1 - y, y)
    for follow in (False, True):
        weights = torch.from_numpy(np.where(swapped == follow, 1.0, 1e-3))
        network = fit_head(task_of(x, given), weights)
        told = spoken(network, task_of(x, y)).argmax(1).numpy()
        assert (told == np.where(follow, 1 - y, y)).mean() > 0.7


def test_a_constant_column_and_a_tiny_scale_do_no_harm():
    x, y = overlapping(600)
    network, _ = erm(task_of(x, y))
    odd = np.hstack([1e-5 * x, np.full((600, 1), 3.0, np.float32)])
    other, _ = erm(task_of(odd, y))
    one, two = accuracy(network, task_of(x, y)), accuracy(other, task_of(odd, y))
    assert two == pytest.approx(one, abs=0.01)


def test_many_samples_are_judged_by_a_part_drawn_by_the_seed():
    few = judging(torch.zeros(500), 10, 0)
    assert few.tolist() == list(range(500))
    many = judging(torch.zeros(60_000), 10, 0)
    assert len(many) == len(many.unique()) == 10_000
    assert not torch.equal(many, judging(torch.zeros(60_000), 10, 1))
    assert len(judging(torch.zeros(60_000), 1000, 0)) == 2_000


def test_heads_of_even_groups_are_of_every_strength_and_both_sets_of_columns():
    """Held-out logits are those of the strength; strengths are tried until they get worse."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    cue = np.where(rng.random(400) < 0.06, 1 - y, y)
    x = rng.normal(size=(400, 30)).astype(np.float32)
    x[:, 0] += y
    x[:, 1] += 6 * cue
    task = replace(task_of(x, y), core=8)
    x, y = torch.from_numpy((x - x.mean(0)) / x.std(0)), torch.from_numpy(y)
    weights = even(2 * y + torch.from_numpy(cue), 1.0)
    found = even_heads(x, y, task, weights)
    assert {one.columns for one in found} == {8, 30}
    for columns in (8, 30):
        some = [one for one in found if one.columns == columns]
        data = Examples.of(x[:, :columns].contiguous(), y, 2, task.seed)
        every = data.held_out(weights, STRENGTHS)
        assert [one.at for one in some] == list(range(len(some)))
        for one in some:
            torch.testing.assert_close(one.logits, every[one.at], atol=1e-3, rtol=1e-3)
        scores = [calibrated(z, y, weights) for z in every]
        assert int(np.argmin(scores)) < len(some)
        assert len({float(one.of_all(x, y, weights).norm()) for one in some}) == len(some) > 1
        head = some[-1].of_all(x, y, weights)
        assert head.shape == (31, 2)
        assert bool((head[columns:-1] == 0).all())


def test_a_calibrated_head_says_the_same_in_units_of_its_own_doubt():
    """What lies between two heads means something only if their logits are of one size."""
    x, y = (torch.from_numpy(a) for a in overlapping(600, 200))
    task = task_of(x.numpy(), y.numpy())
    loud = replace(plain_head(x, y, task, torch.ones(600)), at=len(STRENGTHS) - 1)
    loud = replace(loud, logits=7 * loud.logits)
    ones = torch.ones(600)
    calm = loud.calibrated(y, ones)
    assert temperature(calm.logits, y, ones) == pytest.approx(1, abs=0.02)
    assert torch.equal(calm.logits.argmax(1), loud.logits.argmax(1))
    heat = temperature(loud.logits, y, ones)
    heads = [one.of_all(x, y, ones) for one in (loud, calm)]
    torch.testing.assert_close(heads[0] / heat, heads[1])
