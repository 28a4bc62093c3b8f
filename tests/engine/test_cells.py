"""A linear network over directions of cells is the same network over cells, and takes pictures."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from sebra.engine import networks
from sebra.engine.cells import Celled, over_cells
from sebra.engine.networks import LINEAR, NetworkSpec
from sebra.engine.patches import Basis, View

SIZE = 80


@pytest.fixture(scope="module")
def seen():
    """A small network with a map on the way, pictures, and what it makes of them."""
    spec = NetworkSpec("resnet18", (3, SIZE, SIZE), 1)
    pictures = torch.randint(0, 255, (24, 3, SIZE, SIZE), dtype=torch.uint8)
    view = View(networks.build(spec, 0).eval())
    view.look(pictures[:1])
    with torch.no_grad():
        return spec, pictures, view, view(pictures)


def test_cells_follow_the_penultimate_features(seen):
    spec, pictures, view, rows = seen
    z, _, finer = view.parts(rows)
    expected = torch.cat([z, finer.flatten(1)], 1)
    body = Celled(networks.build(spec, 0).body.eval(), 512, view.cells[2])
    network = networks.Network(body, body.width, spec).eval()
    assert body.width == expected.shape[1]
    with torch.no_grad():
        torch.testing.assert_close(network.embed(pictures), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "side"), [(10, 5), (14, 5), (5, 5), (7, 2)])
def test_cells_are_averaged_as_torch_does_it(n, side):
    from sebra.engine.cells import _averages

    maps = torch.randn(2, 3, n, n)
    ours = _averages(n, side) @ maps @ _averages(n, side).T
    torch.testing.assert_close(ours, F.adaptive_avg_pool2d(maps, side))


def test_a_head_over_directions_says_the_same_over_cells(seen):
    _, _, view, rows = seen
    z, cells, finer = view.parts(rows)
    basis = Basis.of(z, cells, finer)
    wide = basis(z, cells, finer)[:, basis.ranked :]
    top = networks.build(NetworkSpec(LINEAR, (wide.shape[1],), 3), 0)
    std, mean = torch.std_mean(wide, dim=0)
    top.standardise(mean, std)
    torch.nn.init.normal_(top.head.weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.normal_(top.head.bias, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = top(wide)
        told = over_cells(top, z.shape[1], basis)(torch.cat([z, finer.flatten(1)], 1))
    torch.testing.assert_close(told, expected, rtol=1e-3, atol=1e-3)


def test_a_description_with_too_many_cells_is_refused():
    described = {**NetworkSpec("resnet18", (3, 32, 32), 2).to_dict(), "cells": 10**6}
    with pytest.raises(ValueError, match="cells"):
        NetworkSpec.from_dict(described)
