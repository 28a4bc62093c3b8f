"""Words for a place, for files, and of CLIP: from real code paths, claimed only above the bar."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sebra.errors import UsageError
from sebra.samples.table import ImageArray, Samples
from sebra_tools.vocabularies import (
    CLIP,
    WORDS,
    box_of,
    place_name,
    words_of_clip,
    words_of_places,
)
from sebra_tools.words import words_of


def pictures(n=48, side=48):
    """Two classes; of both the first half follows, and has a grid of lines at the right."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(90, 160, (n, side, side, 3)).astype(np.uint8)
    follows = np.arange(n) % 4 < 2
    pixels[follows, 16:32:2, 36:] = 255
    labels = np.arange(n) % 2
    samples = Samples(
        ids=np.array([str(i) for i in range(n)], dtype=object),
        labels=labels,
        classes=("a", "b"),
        split=np.zeros(n, dtype=np.int8),
        content=ImageArray(pixels, np.arange(n)),
        name="test",
    )
    return samples, follows


def prepared_for(samples, **more):
    return SimpleNamespace(
        _read=lambda name: (samples, samples.content), device=torch.device("cpu"), **more
    )


class Head:
    """ResNet-18 as it is built, with a random classifier."""

    source = "none"

    def __init__(self):
        weight = torch.randn(1000, 512, generator=torch.Generator().manual_seed(0))
        self.tensors = {"fc.weight": weight, "fc.bias": torch.zeros(1000)}


def test_the_place_is_asked_alone(monkeypatch):
    from sebra_tools import vocabularies

    samples, follows = pictures()
    seen = []

    class Network:
        def to(self, device):
            return self

        def eval(self):
            return self

        def embed(self, x):
            seen.append(x)
            return x.float().mean((2, 3)).repeat(1, 171)[:, :512]

    monkeypatch.setattr(vocabularies.networks, "build", lambda *given: Network())
    words = ([f"word {i}" for i in range(1000)], np.zeros((len(samples), 1000)))
    monkeypatch.setattr(vocabularies, "imagenet", lambda _: words)
    prepared = prepared_for(samples, weights=Head(), backbone="resnet18")
    (family,) = words_of_places(prepared, samples, follows)
    assert family.kind == "object there"
    assert family.known.all()
    assert family.names[0][0].startswith("at the right it looks like")
    assert seen[0].dtype == torch.uint8
    assert float(seen[0].float().max()) > 200  # the lines are in the part
    (word,) = words_of([family], follows, samples.labels, samples.classes)
    assert word.area > 0.9


def test_without_a_classifier_nothing_is_said():
    samples, follows = pictures(8)
    prepared = prepared_for(samples, weights=None)
    assert list(words_of_places(prepared, samples, follows)) == []


def test_a_place_has_a_name():
    heat = np.zeros((14, 14))
    heat[7, 12] = 1
    assert place_name(box_of(heat)) == "at the right it"
    heat[0, 0] = 0.9
    assert place_name(box_of(heat)) == "at the right it"
    heat[:] = 1
    assert box_of(heat) == (0, 0, 1, 1)


@pytest.fixture
def clip(tmp_path):
    """A CLIP of random weights, small enough to make in a test."""
    transformers = pytest.importorskip("transformers")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(f"{c}</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    transformers.CLIPTokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    ).save_pretrained(tmp_path)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.CLIPConfig(
        text_config={
            **shape,
            "vocab_size": len(tokens),
            "num_attention_heads": 2,
            "projection_dim": 8,
            "bos_token_id": len(tokens) - 2,
            "eos_token_id": len(tokens) - 1,
            "pad_token_id": len(tokens) - 1,
        },
        vision_config={
            **shape,
            "image_size": 32,
            "patch_size": 8,
            "num_attention_heads": 2,
            "projection_dim": 8,
        },
        projection_dim=8,
    )
    torch.manual_seed(0)
    transformers.CLIPModel(config).save_pretrained(tmp_path)
    transformers.CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    ).save_pretrained(tmp_path)
    (tmp_path / WORDS).write_text("a cow\na traffic light\n\nsnow\n", encoding="utf-8")
    return tmp_path


def test_clip_is_asked_its_words_and_chance_claims_none(clip, monkeypatch):
    samples, _ = pictures()
    follows = np.random.default_rng(1).random(len(samples)) < 0.5
    assert list(words_of_clip(prepared_for(samples), samples, follows)) == []
    monkeypatch.setenv(CLIP, str(clip))
    (family,) = words_of_clip(prepared_for(samples), samples, follows)
    assert family.values.shape == (len(samples), 3)
    assert family.names[1] == ("shows a traffic light", "does not show a traffic light")
    assert np.abs(family.values).max() <= 1.001
    assert len(np.unique(family.values[:, 0])) > 1
    assert words_of([family], follows, samples.labels, samples.classes) == []


def test_a_folder_without_clip_is_refused_in_one_line(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    samples, follows = pictures(8)
    monkeypatch.setenv(CLIP, str(tmp_path))
    with pytest.raises(UsageError, match=f"{CLIP}: no CLIP model in"):
        list(words_of_clip(prepared_for(samples), samples, follows))
