"""Networks over token rows: padding does not show, pairs hold what can be compared."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

import encoders
from frozen_features import extract_features
from sebra.engine.networks import NetworkSpec, build
from sebra.engine.text_network import read_encoder
from sebra.errors import UsageError
from sebra.loading.inputs import Inputs
from sebra.loading.texts import TokenArray, Tokeniser
from sebra.samples.table import Texts

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra text")

CPU = torch.device("cpu")
TEXTS = Texts(("a man is running", "a dog", "the boy"), ("no man", "the dog is red", "a boy ."))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return read_encoder(str(encoders.tiny(tmp_path_factory.mktemp("tiny"))))


def network(encoder, tokeniser, classes=3, seed=0, weights=True):
    spec = NetworkSpec(encoder.name, tokeniser.shape, classes, encoder=encoder.config)
    return build(spec, seed, encoder.weights if weights else None).eval()


def rows(tokeniser, texts=TEXTS):
    return torch.from_numpy(tokeniser.encode(texts))


def test_it_is_the_mean_over_the_encoder_s_tokens(encoder):
    from transformers import AutoModel

    tokeniser = Tokeniser(encoder.vocabulary, 16, pair=True)
    x = rows(tokeniser)
    with torch.no_grad():
        found = network(encoder, tokeniser).embed(x)
        model = AutoModel.from_pretrained(encoder.name).eval()
        for i in range(3):
            n = int(x[i, 1].sum())
            one = x[i : i + 1, :, :n].long()
            hidden = model(one[:, 0], one[:, 1], one[:, 2]).last_hidden_state
            torch.testing.assert_close(found[i], hidden.mean(1)[0], atol=1e-5, rtol=1e-4)


def test_padding_and_neighbours_do_not_show(encoder):
    short, long = (
        Tokeniser(encoder.vocabulary, 16, pair=True),
        Tokeniser(encoder.vocabulary, 40, pair=True),
    )
    with torch.no_grad():
        one = network(encoder, short).embed(rows(short))
        other = network(encoder, long).embed(rows(long))[:2]
    torch.testing.assert_close(one[:2], other, atol=1e-5, rtol=1e-4)


def test_a_pair_apart_holds_the_pair_both_sentences_and_how_they_differ(encoder):
    apart = Tokeniser(encoder.vocabulary, 16, pair=True, apart=True)
    joined = Tokeniser(encoder.vocabulary, 16, pair=True)
    alone = Tokeniser(encoder.vocabulary, 16)
    with torch.no_grad():
        z = network(encoder, apart).embed(rows(apart))
        pair = network(encoder, joined).embed(rows(joined))
        a = network(encoder, alone).embed(rows(alone, Texts(TEXTS.first)))
        b = network(encoder, alone).embed(rows(alone, Texts(TEXTS.second)))
    torch.testing.assert_close(z, torch.cat([pair, a, b, (a - b).abs(), a * b], 1))


def test_features_are_what_the_network_embeds(encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    tokeniser = Tokeniser(encoder.vocabulary, 24, pair=True, apart=True)
    made = network(encoder, tokeniser)
    values = tokeniser.encode(TEXTS)
    inputs = Inputs(TokenArray(values, np.array([2, 0, 1])), CPU)
    assert inputs.is_text
    assert not inputs.is_image
    features = extract_features(made.spec, encoder.weights, inputs, "key").pooled
    with torch.no_grad():
        expected = made.embed(torch.from_numpy(values)[[2, 0, 1]])
    np.testing.assert_allclose(features.values, expected.numpy(), atol=2e-3)


def test_all_layers_learn_without_chance_between_two_passes(encoder):
    tokeniser = Tokeniser(encoder.vocabulary, 16, pair=True)
    made = network(encoder, tokeniser).train()
    x = rows(tokeniser)
    torch.testing.assert_close(made.embed(x), made.embed(x))  # no dropout
    torch.nn.init.normal_(made.head.weight)
    made(x).square().sum().backward()
    without = [n for n, p in made.named_parameters() if p.grad is None]
    assert without == []


def test_one_seed_gives_one_network_and_weights_leave_nothing_to_chance(encoder):
    tokeniser = Tokeniser(encoder.vocabulary, 16)
    x = rows(tokeniser, Texts(TEXTS.first))
    with torch.no_grad():
        scratch = [network(encoder, tokeniser, seed=s, weights=False).embed(x) for s in (1, 1, 2)]
        filled = [network(encoder, tokeniser, seed=s).embed(x) for s in (1, 2)]
    torch.testing.assert_close(scratch[0], scratch[1])
    assert not torch.allclose(scratch[0], scratch[2])
    torch.testing.assert_close(*filled)


def test_a_bert_can_be_captured_and_gives_what_the_usual_mask_gives(encoder):
    tokeniser = Tokeniser(encoder.vocabulary, 16)
    made = network(encoder, tokeniser)
    assert made.capturable
    x = rows(tokeniser, Texts(TEXTS.first))
    with torch.no_grad():
        wide = made.body(x)
        made.body.capturable = False
        torch.testing.assert_close(made.body(x), wide, atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
def test_a_captured_step_takes_the_plain_step(encoder):
    from sebra.engine.step import TrainStep, make_optimizer

    cuda = torch.device("cuda")
    tokeniser = Tokeniser(encoder.vocabulary, 16, pair=True)
    x = rows(tokeniser).to(cuda)
    y = torch.tensor([0, 1, 2], device=cuda)
    losses = []
    for graph in (True, False):
        made = network(encoder, tokeniser).to(cuda).train()
        optimizer = make_optimizer(made, "adamw", 1e-3)

        def loss(index, rand, made=made):
            return torch.nn.functional.cross_entropy(made(x[index]).float(), y[index])

        step = TrainStep(made, optimizer, loss, cuda, graph=graph)
        index, rand = torch.arange(3, device=cuda), torch.zeros(3, 0, device=cuda)
        losses.append([float(step(index, rand)) for _ in range(8)])
        assert (step._graph is not None) == graph
    np.testing.assert_allclose(*losses, rtol=2e-2)


def test_what_is_no_encoder_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_OFFLINE", "1")
    for name, message in {
        str(tmp_path / "nowhere"): "no such folder",
        "someone/model": "SEBRA_OFFLINE=1 forbids the hub",
        str(tmp_path): "cannot be read",
    }.items():
        with pytest.raises(UsageError, match=message) as caught:
            read_encoder(name)
        assert "\n" not in str(caught.value)
