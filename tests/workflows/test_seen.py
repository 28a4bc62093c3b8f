"""Small pictures are enlarged for a frozen pretrained network, and for the model it becomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sebra.debiasing.model import Model
from sebra.engine import networks
from sebra.engine.networks import NetworkSpec
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.loading.decode import MAX_SIZE
from sebra.runs.folder import RunFolder
from sebra.runs.meter import Meter
from sebra.workflows.debias import DebiasOptions, debias
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import MOST_TIMES
from sebra.workflows.rank import RankOptions, rank


def prepared(source, **change):
    return prepare(replace(source, **change), Session(), Meter())


@pytest.mark.parametrize(("side", "seen"), [(32, 128), (56, 224), (160, 224), (224, 0), (300, 0)])
def test_they_are_enlarged_to_what_the_network_was_trained_with(cars, side, seen):
    p = prepared(cars, mode="features")
    p.image_size = side
    assert p.seen == 0
    larger = p.enlarged()
    assert larger.seen == larger.backbone_spec().seen == seen <= min(MAX_SIZE, MOST_TIMES * side)
    assert larger.backbone_spec().inputs == (3, side, side)
    assert any("enlarged to" in note for note in p.session.notes) == (seen > 0)
    assert larger.enlarged().seen == seen


def test_a_size_that_is_named_and_a_network_that_trains_see_pictures_as_they_are(cars):
    frozen = prepared(cars, mode="features")
    named = prepared(cars, mode="features", image_size=frozen.image_size)
    for p in (named, prepared(cars)):
        assert p.enlarged() is p
        assert not any("enlarged" in note for note in p.session.notes)


def test_a_ranking_is_the_same_whoever_asks_for_it(cars, tmp_path):
    """It sees pictures at their own size, also where last layers see them larger."""
    source = replace(cars, mode="features")
    alone = rank(source, RankOptions("peel"))
    first = debias(source, DebiasOptions("auto"))
    assert first.prepared.seen > 0
    assert alone.prepared.seen == 0
    assert first.ranking.table["rank"].tolist() == alone.ranking.table["rank"].tolist()


def test_another_seed_shares_what_was_enlarged(cars):
    p = prepared(cars, mode="features")
    one = p.enlarged()
    one.split("train")
    other = replace(p, source=replace(p.source, seed=3)).enlarged()
    assert other.split("train")[1] is one.split("train")[1]
    assert other.task("train").seed == 3


def test_the_network_sees_what_torch_enlarges():
    plain = NetworkSpec("test_resnet", (3, 32, 32), 2)
    pictures = torch.randint(0, 255, (3, 3, 32, 32), dtype=torch.uint8)
    small, large = (networks.build(s, 0).eval() for s in (plain, replace(plain, seen=64)))
    with torch.no_grad():
        enlarged = F.interpolate((pictures - small.shift) * small.scale, (64, 64), mode="bilinear")
        torch.testing.assert_close(large.embed(pictures), small.body(enlarged))


@pytest.mark.parametrize("method", ["erm", "stages"])
def test_the_saved_model_sees_them_in_the_same_way(cars, tmp_path, method):
    folder = RunFolder.create(str(tmp_path / "run"), "debias")
    settings = ("epochs=1",) if method == "stages" else ()
    run = debias(replace(cars, mode="features"), DebiasOptions(method, None, settings), folder)
    assert run.model.specs[0].seen == run.prepared.seen > 0
    test = run.prepared.task("test")
    with torch.no_grad():
        said = run.network(test.batch(torch.arange(len(test)))).softmax(1).numpy()
    loaded = Model.load(folder.path, "cpu")
    rows = run.prepared.samples.rows("test")
    pictures = [run.prepared.samples.content.paths[row] for row in rows]
    np.testing.assert_allclose(loaded.probabilities(pictures), said, atol=0.02)
    assert np.abs(said - said.mean(0)).max() > 0.02


def test_a_side_that_no_picture_has_is_refused():
    described = {**NetworkSpec("resnet18", (3, 32, 32), 2).to_dict(), "seen": 10**6}
    with pytest.raises(ValueError, match="px"):
        NetworkSpec.from_dict(described)


def test_a_network_of_one_size_gets_pictures_of_that_size_alone(cars):
    wanted = {"backbone": "vit_tiny_patch16_224", "weights": "none"}
    assert prepared(cars, **wanted).image_size == 224
    assert prepared(cars).image_size != 224
    with pytest.raises(UsageError, match=r"--image-size 64: .* takes pictures of 224 px alone"):
        prepared(cars, image_size=64, **wanted)
