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
from sebra.engine.patches import CHANNELS, FINER_CHANNELS, Basis, Directions, View
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
        z, cells, finer = seen.parts(seen(x))
        scaled = (x.float() - made.shift) * made.scale
        theirs = timm.create_model(name, num_classes=0).eval()
        theirs.load_state_dict(made.body.state_dict())
        middle = theirs.forward_intermediates(scaled, indices=[-2], intermediates_only=True)
    for grid, side in ((cells, 5), (finer, min(7, *middle[0].shape[2:]))):
        expected = F.adaptive_avg_pool2d(middle[0], side)
        torch.testing.assert_close(grid, expected, atol=0.02, rtol=0.02)
    torch.testing.assert_close(z, made.embed(x), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("name", ["small", "random", "vit_tiny_patch16_224"])
def test_a_network_without_such_a_map_has_no_cells(name):
    side = 224 if name.startswith("vit") else 32
    seen = view(name, pictures(2, side))
    assert not seen.has_cells
    assert seen.columns(None, 100) == seen.network.width
    with torch.no_grad():
        (z,) = seen.parts(seen(pictures(2, side).batch(torch.arange(2))))
    assert z.shape == (2, seen.network.width)


def test_a_picture_of_a_few_cells_has_that_many():
    inputs = pictures(4, side=48)
    seen = view("resnet18", inputs)
    with torch.no_grad():
        _, cells, finer = seen.parts(seen(inputs.batch(torch.arange(4))))
    assert cells.shape == finer.shape == (4, 256, 3, 3)


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


def seen_parts(n: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(n, 512), torch.randn(n, 256, 5, 5), torch.randn(n, 256, 7, 7)


def test_a_basis_survives_being_text():
    basis, parts = Basis.of(*seen_parts(12)), seen_parts(2)
    again = Basis.from_text(basis.to_text())
    assert torch.equal(again(*parts), basis(*parts))
    assert again.ranked == basis.ranked == 3 + 25 * CHANNELS
    assert again.finest == basis.finest == 49 * FINER_CHANNELS


def test_rankers_see_the_first_directions_of_coarse_cells_and_last_layers_all_of_finer_ones():
    basis, (z, cells, finer) = Basis.of(*seen_parts(12)), seen_parts(3)
    ranked, own, fine = basis(z, cells, finer).split([basis.ranked, 512, basis.finest], dim=1)
    coarse = basis.channels(cells.permute(0, 2, 3, 1))[..., :CHANNELS]
    torch.testing.assert_close(ranked, torch.cat([basis.overview(z), coarse.flatten(1)], 1))
    assert torch.equal(own, z)
    torch.testing.assert_close(fine, basis.channels(finer.permute(0, 2, 3, 1)).flatten(1))


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
        parts = seen.parts(seen(inputs.batch(torch.arange(11))))
    made = found.basis(*parts)
    ranked, behind = made[:, : found.basis.ranked], made[:, found.basis.ranked :]
    assert made.shape == (11, seen.columns(None, 11))
    given = (found.pooled, parts[0]), (found.patches, ranked), (found.all, behind)
    for values, expected in given:
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
