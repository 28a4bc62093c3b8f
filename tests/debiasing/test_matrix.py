"""Every registered method on every kind of data: it learns, repeats itself, resumes, and asks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from debiasing.toys import AT_ONCE, ONE_LOOK, SETTINGS, TOYS, accuracy, fit
from sebra.debiasing.registry import METHODS, method_class
from sebra.debiasing.selection import Selector
from sebra.engine.session import Session
from sebra.errors import UsageError

VARIANTS = [
    *((name, {}) for name in METHODS),
    ("sebra", {"hard": 2.0}),
    ("stages", {"pairs": "buckets"}),
    ("groupdro", {"over": "buckets"}),
    ("dfr", {"on": "patterns"}),
    ("resample", {"by": "stages"}),
]
IDS = ["-".join([name, *map(str, settings.values())]) for name, settings in VARIANTS]


def class_of(name):
    return method_class(name)


def settings_of(cls, kind, extra):
    own = {"jtt": {"upsample": 10}}.get(cls.name, {})
    return {**SETTINGS[kind], **own, **extra}


@cache
def fitted(position, kind):
    """One uninterrupted training, shared by the tests."""
    name, extra = VARIANTS[position]
    cls = class_of(name)
    toy = TOYS[kind]()
    selector = Selector(lambda network: (accuracy(network, toy.held), {}), "held-out accuracy")
    method = cls(cls.config_class(**settings_of(cls, kind, extra)))
    network = method.fit(toy.train, toy.help(method.needs, selector), Session())
    return network, selector


def same(network, other):
    ours, theirs = network.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(v, theirs[k]) for k, v in ours.items())


@pytest.mark.parametrize("kind", TOYS)
@pytest.mark.parametrize("position", range(len(VARIANTS)), ids=IDS)
def test_learns_with_what_it_needs_and_nothing_else(position, kind):
    network, selector = fitted(position, kind)
    toy = TOYS[kind]()
    chance = 1 / toy.train.classes
    assert accuracy(network, toy.held) > chance + 0.2
    assert accuracy(network, toy.train) > chance + 0.2
    name = VARIANTS[position][0]
    if name == "auto":
        assert selector.rows == []
        return
    assert max(row["score"] for row in selector.rows) > chance + 0.2
    if name not in (AT_ONCE if kind == "features" else ONE_LOOK):
        assert len(selector.rows) >= SETTINGS[kind]["epochs"]


@pytest.mark.parametrize("kind", TOYS)
@pytest.mark.parametrize("position", range(len(VARIANTS)), ids=IDS)
def test_resumes_to_the_same_weights(position, kind, tmp_path):
    whole, rows = fitted(position, kind)[0], fitted(position, kind)[1].rows
    name, extra = VARIANTS[position]
    if name == "auto":
        pytest.skip("it looks at no epoch: test_auto.py ends it between its trainings")
    cls, toy = class_of(name), TOYS[kind]()
    last = 1 if name in (AT_ONCE if kind == "features" else ONE_LOOK) else 4
    config = cls.config_class(**settings_of(cls, kind, extra))
    calls = []

    def dies(network):
        calls.append(1)
        if len(calls) == last:
            raise KeyboardInterrupt
        return accuracy(network, toy.held), {}

    method = cls(config)
    with pytest.raises(KeyboardInterrupt):
        method.fit(
            toy.train,
            toy.help(method.needs, Selector(dies, "held-out accuracy")),
            Session(tmp_path, every_seconds=0),
        )
    calls.extend([1] * 10)
    method = cls(config)
    selector = Selector(dies, "held-out accuracy")
    started = len(calls)
    resumed = method.fit(
        toy.train, toy.help(method.needs, selector), Session(tmp_path, resume=True)
    )
    assert len(calls) - started == len(rows) - last + 1  # the rest came from the checkpoint
    assert selector.rows == rows
    assert same(whole, resumed)


# Of pictures: over features some have one solution, whatever the seed that cuts the folds.
@pytest.mark.parametrize("position", range(len(VARIANTS)), ids=IDS)
def test_repeats_itself_for_a_seed_and_not_for_another(position):
    name, extra = VARIANTS[position]
    kind = "images"
    cls = class_of(name)
    settings = {**settings_of(cls, kind, extra), "epochs": 2}
    one, other = (fit(cls, TOYS[kind](seed), **settings)[1] for seed in (1, 2))
    if name == "auto":  # of the others a whole second training gives the same: see above
        assert same(one, fit(cls, TOYS[kind](1), **settings)[1])
    if name != "dfr":  # its last layer has one solution, too
        assert not same(one, other)


@pytest.mark.parametrize("position", range(len(VARIANTS)), ids=IDS)
def test_says_what_it_lacks(position):
    name, extra = VARIANTS[position]
    cls = class_of(name)
    toy = TOYS["features"]()
    method = cls(cls.config_class(**settings_of(cls, "features", extra)))
    field = {"ranking": "guide"}
    for need in method.needs - ({"ranking"} if name == "auto" else set()):
        lacking = replace(toy.help(method.needs), **{field.get(need, need): None})
        with pytest.raises(UsageError, match=f"--method {name}: needs"):
            method.fit(toy.train, lacking, Session())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TOYS)
@pytest.mark.parametrize("position", range(len(VARIANTS)), ids=IDS)
def test_learns_on_a_gpu(position, kind):
    """The captured step must do what the plain one does."""
    name, extra = VARIANTS[position]
    cls = class_of(name)
    toy = TOYS[kind](device="cuda")
    _, network = fit(cls, toy, **settings_of(cls, kind, extra))
    assert accuracy(network, toy.train) > 1 / toy.train.classes + 0.2


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="groupdro"):
        method_class("nonsense")
