"""Patch features: the overview and the cells of a picture."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F

from frozen_features import extract_features
from sebra.engine import features, networks
from sebra.engine.features import Frozen
from sebra.engine.networks import NetworkSpec
from sebra.engine.patches import CHANNELS, FINER, Basis, Directions, View
from sebra.loading.inputs import Inputs
from sebra.samples.table import ImageArray

CPU = torch.device("cpu")


def pictures(n: int, side: int = 96, seed: int = 0) -> Inputs:
    pixels = np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    return Inputs(ImageArray(pixels, np.arange(n)), CPU)


def spec(name: str, side: int = 96) -> NetworkSpec:
    return NetworkSpec(name, (3, side, side), 2)


def view(name: str, inputs: Inputs) -> View:
    made = View(networks.build(spec(name, inputs.shape[0]), 0)).eval()
    made.look(inputs.batch(torch.arange(1)))
    return made


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "convnext_atto"])
def test_the_cells_are_means_of_the_map_before_the_last_halving(name):
    inputs = pictures(3)
    seen = view(name, inputs)
    made, x = seen.network, inputs.batch(torch.arange(3))
    with torch.no_grad():
        z, cells = seen.parts(seen(x))
        scaled = (x.float() - made.shift) * made.scale
        theirs = timm.create_model(name, num_classes=0).eval()
        theirs.load_state_dict(made.body.state_dict())
        middle = theirs.forward_intermediates(scaled, indices=[-2], intermediates_only=True)
    expected = F.adaptive_avg_pool2d(middle[0], 5)
    torch.testing.assert_close(cells, expected, atol=0.02, rtol=0.02)
    torch.testing.assert_close(z, made.embed(x), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("name", ["small", "random", "vit_tiny_patch16_224"])
def test_a_network_without_such_a_map_has_no_cells(name):
    side = 224 if name.startswith("vit") else 32
    seen = view(name, pictures(2, side))
    assert not seen.has_cells
    assert seen.width_after(None, 100) == 0
    with torch.no_grad():
        (z,) = seen.parts(seen(pictures(2, side).batch(torch.arange(2))))
    assert z.shape == (2, seen.network.width)


def test_a_picture_of_a_few_cells_has_that_many():
    inputs = pictures(4, side=48)
    seen = view("resnet18", inputs)
    with torch.no_grad():
        _, cells = seen.parts(seen(inputs.batch(torch.arange(4))))
    assert cells.shape == (4, 256, 3, 3)


def test_directions_are_those_of_the_singular_values():
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 7)
    x[:, 5] = x[:, 0] + 0.1 * x[:, 5]
    found = Directions.of(x, 2)
    z = (x - x.mean(0)) / x.std(0, correction=0)
    _, _, v = torch.linalg.svd(z.double(), full_matrices=False)
    for k in range(2):
        assert abs(float(found.axes[:, k].double() @ v[k])) == pytest.approx(1, abs=1e-4)
    torch.testing.assert_close(found(x).var(0, correction=0), (z @ found.axes).var(0, correction=0))


def test_little_data_gives_fewer_directions_and_constant_features_no_infinity():
    x = torch.ones(12, 50)
    found = Directions.of(x, 32)
    assert found.axes.shape == (50, 3)
    assert torch.isfinite(found(x)).all()


def test_a_basis_survives_being_text():
    basis = Basis.of(torch.randn(12, 512), torch.randn(12, 256, 5, 5))
    again = Basis.from_text(basis.to_text())
    z, cells = torch.randn(2, 512), torch.randn(2, 256, 5, 5)
    assert torch.equal(again(z, cells), basis(z, cells))
    assert again.width == basis.width == 3 + 25 * FINER


def test_rankers_see_the_first_directions_of_every_cell_and_last_layers_the_others_too():
    basis = Basis.of(torch.randn(12, 512), torch.randn(12, 256, 5, 5))
    z, cells = torch.randn(3, 512), torch.randn(3, 256, 5, 5)
    made, each = basis(z, cells), basis.channels(cells.permute(0, 2, 3, 1))
    assert basis.ranked == 3 + 25 * CHANNELS
    first, finer = made[:, 3 : basis.ranked], made[:, basis.ranked :]
    torch.testing.assert_close(first.view(3, 5, 5, CHANNELS), each[..., :CHANNELS])
    torch.testing.assert_close(finer.view(3, 5, 5, FINER - CHANNELS), each[..., CHANNELS:])


def test_every_row_is_filled_once_whether_it_gave_the_basis_or_not(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    monkeypatch.setattr("sebra.engine.patches.PROBES", 5)
    monkeypatch.setattr(features, "PROBES", 5)
    monkeypatch.setitem(features._BATCH, "cpu", 4)
    inputs, seen = pictures(11), view("resnet18", pictures(11))
    told: list[tuple[int, int]] = []
    found = extract_features(
        spec("resnet18"), None, inputs, "k", lambda *a: told.append(a), look=True
    )
    with torch.no_grad():
        z, cells = seen.parts(seen(inputs.batch(torch.arange(11))))
    assert found.patches.values.shape == (11, seen.width_after(None, 11))
    for values, expected in ((found.pooled, z), (found.patches, found.basis(z, cells))):
        np.testing.assert_allclose(values.values, expected.numpy(), atol=0.02, rtol=0.02)
    assert told[-1] == (11, 11)


def test_another_split_is_seen_through_the_same_basis(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    made, train, val = spec("resnet18"), pictures(9), pictures(4, seed=1)
    frozen = Frozen(made, None, train, "t", look=True)
    basis = frozen.features(train, "t").basis
    found = frozen.features(val, "v")
    own = extract_features(made, None, val, "v", look=True)
    torch.testing.assert_close(found.basis.channels.axes, basis.channels.axes)
    assert own.patches.values.shape != found.patches.values.shape
    np.testing.assert_array_equal(own.pooled.values, found.pooled.values)


def test_without_a_look_only_the_penultimate_features_are_made(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    found = extract_features(spec("resnet18"), None, pictures(3), "k")
    assert found.patches is None
    assert found.pooled.values.shape == (3, 512)
