"""Every method over token rows: a tiny encoder learns from the words, and does so again."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from debiasing.toys import _labels, _toy, accuracy, fit
from sebra.debiasing.registry import METHODS, method_class
from sebra.engine.networks import NetworkSpec, build
from sebra.loading.texts import TokenArray
from sebra_bench.baselines.shifts import RANDOMS, text_shifts

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra text")

LENGTH, WORDS = 8, 12
CONFIG = json.dumps(
    {
        "model_type": "bert",
        "vocab_size": WORDS,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 16,
    }
)


def texts(seed=0, train=96):
    """Word 2 or 3 says the cue, word 4 or 5 the label; others are noise, the end is padding."""
    rng = np.random.default_rng(7)
    y, cue = _labels(rng, 2, train, 0.2)
    values = np.zeros((len(y), 3, LENGTH), np.int32)
    values[:, 0] = rng.integers(6, WORDS, (len(y), LENGTH))
    values[:, 0, 0] = 1
    values[:, 0, 1] = 2 + cue
    values[:, 0, 2] = 4 + y
    values[:, 1] = np.arange(LENGTH) < rng.integers(4, LENGTH + 1, (len(y), 1))
    spec = NetworkSpec("tiny", (3, LENGTH), 2, encoder=CONFIG)
    content = TokenArray(values, np.arange(len(y)))
    return _toy(content, y, cue, 2, train, lambda s, hidden: build(spec, s), seed, "cpu")


def same(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_from_words(name):
    cls = method_class(name)
    settings = {"epochs": 8, "optimizer": "adamw", "lr": 1e-2, "batch": 32, "crop": 0.5}
    own = {"sebra": {"gamma": 5.0, "tau": 0.5}, "jtt": {"upsample": 10}}
    settings |= own.get(name, {})
    toy = texts()
    network = fit(cls, toy, **settings)[1]
    assert accuracy(network, toy.train) > 0.7
    brief = {**settings, "epochs": 1}
    assert same(fit(cls, texts(), **brief)[1], fit(cls, texts(), **brief)[1])


@pytest.mark.parametrize("name", ["words", "beginning", "end"])
def test_a_shift_hides_words_and_never_the_first(name):
    generator = torch.Generator().manual_seed(0)
    shift = text_shifts(0.5, LENGTH, generator, torch.device("cpu"))[name]
    x = torch.zeros(64, 9, LENGTH, dtype=torch.int32)
    x[:, 0::3] = 7
    x[:, 1::3, :6] = 1
    out = shift(x, torch.rand(64, RANDOMS, generator=generator))
    assert out.dtype == x.dtype
    ids, types = [0, 3, 6], [2, 5, 8]
    assert torch.equal(out[:, ids + types], x[:, ids + types])
    hidden = (x - out)[:, 1]
    assert bool((hidden >= 0).all())
    assert 0 < int(hidden.sum()) < int(x[:, 1].sum())
    assert int(hidden[:, 0].sum()) == 0
    if name == "end":
        assert int(hidden[:, 1:3].sum()) == 0
    if name == "beginning":
        assert int(hidden[:, 3:].sum()) == 0
