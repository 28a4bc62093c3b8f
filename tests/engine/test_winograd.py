"""Winograd's convolution against the direct one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sebra.engine import winograd


@pytest.mark.parametrize(("height", "width"), [(4, 4), (20, 20), (10, 7), (5, 1), (5, 5)])
def test_it_equals_the_direct_convolution(height, width):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, height, width, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(7, 5, 3, 3, generator=generator)
    found = winograd.convolve(x, winograd.Kernel(weight))
    torch.testing.assert_close(found, F.conv2d(x, weight, padding=1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tile", [4, 5])
def test_the_transforms_are_exact(tile):
    by = winograd.transforms(tile)
    generator = torch.Generator().manual_seed(1)
    signal = torch.randn(by.window, by.window, generator=generator, dtype=torch.float64)
    taps = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    spread = torch.kron(by.kernel, by.kernel) @ taps.flatten()
    values = (by.to_window.double() @ signal.flatten()) * spread
    found = (by.to_tile.double() @ values).view(tile, tile)
    torch.testing.assert_close(found, F.conv2d(signal[None, None], taps[None, None])[0, 0])


def test_the_tile_wastes_least():
    assert [winograd.tile_for(side, side) for side in (5, 7, 8, 10, 16, 20)] == [5, 4, 4, 5, 4, 5]


def test_it_is_for_plain_convolutions_of_middle_width_only():
    assert winograd.suits(nn.Conv2d(128, 256, 3, padding=1))
    others = [
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Conv2d(1024, 1024, 3, padding=1),
        nn.Conv2d(128, 128, 3, padding=1, stride=2),
        nn.Conv2d(128, 128, 3, padding=0),
        nn.Conv2d(128, 128, 3, padding=2, dilation=2),
        nn.Conv2d(128, 128, 3, padding=1, groups=2),
        nn.Conv2d(128, 128, 1),
    ]
    assert not any(winograd.suits(conv) for conv in others)
