"""A map is warm where the two kinds of pictures differ, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sebra.engine.networks import RANDOM, SMALL, NetworkSpec, build
from sebra.engine.saliency import averaged, contrast_maps, feature_maps, has_maps


def corner_pictures(n=32, side=48):
    """Noise; the first half has a bright square in the upper left corner."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(60, 120, (n, 3, side, side)).astype(np.uint8)
    pixels[: n // 2, :, :16, :16] = 250
    return torch.from_numpy(pixels)


@pytest.fixture(scope="module")
def network():
    return build(NetworkSpec(RANDOM, (3, 48, 48), 2), 0)


def test_the_map_is_warm_where_the_cue_is(network):
    images = corner_pictures()
    follows = torch.arange(32) < 16
    heat = averaged(contrast_maps(feature_maps(network, images), follows)[:16])
    cells = heat.shape[0] // 3
    assert heat[:cells, :cells].mean() > 3 * heat[cells:, cells:].mean()
    assert float(heat.min()) == 0
    assert float(heat.max()) == 1


def test_pictures_without_the_cue_stay_cold(network):
    images = corner_pictures()
    maps = contrast_maps(feature_maps(network, images), torch.arange(32) < 16)
    assert maps[:16].mean() > 3 * maps[16:].mean()


def test_maps_are_fine_enough_and_hooks_leave(network):
    maps = feature_maps(network, corner_pictures(n=3))
    assert maps.shape[0] == 3
    assert min(maps.shape[-2:]) >= 6
    assert all(not m._forward_hooks for m in network.modules())


def test_heads_over_features_have_no_places():
    assert not has_maps(build(NetworkSpec("linear", (8,), 2), 0))
    assert has_maps(build(NetworkSpec(SMALL, (3, 32, 32), 2), 0))
