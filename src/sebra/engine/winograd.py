"""3 x 3 convolutions with a quarter of the products (Winograd's minimal filtering), for CPUs.

Libraries for CPUs compute such convolutions directly, near the limit of the processor; only fewer
products make them faster. The transforms cost more than they save in layers of few channels, so
`suits` says where it pays. Tiles are 4 or 5 outputs wide, whichever fits the map with less waste.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

import torch
from torch import Tensor, nn

_NARROWEST, _WIDEST = 128, 512
_TAPS = 3
_TILES = (4, 5)  # outputs per side; wider ones lose too many digits
_POINTS = tuple(Fraction(v) for v in ("0", "1", "-1", "2", "-2", "1/2"))


@dataclass(frozen=True)
class Transforms:
    """The matrices for tiles of one width: of a kernel (one direction), windows and tiles (both).

    Both directions at once: one product with a small matrix instead of many sums over strides.
    """

    tile: int
    window: int
    kernel: Tensor
    to_window: Tensor
    to_tile: Tensor


@cache
def transforms(tile: int) -> Transforms:
    """By Cook and Toom: polynomials are multiplied by their values at points and at infinity."""
    window = tile + _TAPS - 1
    points = _POINTS[: window - 1]
    kernel, inputs = [], []
    for here in points:
        others = [p for p in points if p != here]
        scale = prod((here - p for p in others), start=Fraction(1))
        kernel.append([here**k / scale for k in range(_TAPS)])
        inputs.append([*_polynomial(others), Fraction(0)])
    kernel.append([Fraction(k == _TAPS - 1) for k in range(_TAPS)])
    inputs.append(_polynomial(list(points)))
    outputs = [[p**j for p in points] + [Fraction(j == tile - 1)] for j in range(tile)]
    to_window, to_tile = _matrix(inputs), _matrix(outputs)
    return Transforms(
        tile,
        window,
        _matrix(kernel),
        torch.kron(to_window, to_window).float(),
        torch.kron(to_tile, to_tile).float(),
    )


def _polynomial(roots: list[Fraction]) -> list[Fraction]:
    """Coefficients of the product of (x - root), the constant first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [a - root * b for a, b in zip(shifted, [*found, Fraction(0)], strict=True)]
    return found


def _matrix(rows: list[list[Fraction]]) -> Tensor:
    return torch.tensor([[float(v) for v in row] for row in rows], dtype=torch.float64)


def suits(conv: nn.Conv2d) -> bool:
    """Whether this convolution can be and is worth being computed so."""
    plain = conv.kernel_size == (3, 3) and conv.stride == (1, 1) and conv.padding == (1, 1)
    plain = plain and conv.dilation == (1, 1) and conv.groups == 1
    return plain and all(
        _NARROWEST <= width <= _WIDEST for width in (conv.in_channels, conv.out_channels)
    )


def tile_for(height: int, width: int) -> int:
    """The tile that computes a map of this size with the fewest products."""
    return min(_TILES, key=lambda t: (t + _TAPS - 1) ** 2 * -(-height // t) * -(-width // t))


class Kernel:
    """A kernel (out x in x 3 x 3) in the domain of the products, for every tile it met."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self._of: dict[int, Tensor] = {}

    def at(self, tile: int) -> Tensor:
        """window² x in x out."""
        if tile not in self._of:
            by = transforms(tile)
            both = torch.einsum("ia,jb,ocab->ijco", by.kernel, by.kernel, self.weight.double())
            self._of[tile] = both.flatten(0, 1).float().contiguous()
        return self._of[tile]


def convolve(x: Tensor, kernel: Kernel) -> Tensor:
    """The convolution of `x` (n x c x h x w) with the kernel, padding 1."""
    n, c, height, width = x.shape
    by = transforms(tile_for(height, width))
    tile, window = by.tile, by.window
    down, across = -(-height // tile), -(-width // tile)
    padded = x.new_zeros(n, down * tile + _TAPS - 1, across * tile + _TAPS - 1, c)
    padded[:, 1 : height + 1, 1 : width + 1] = x.permute(0, 2, 3, 1)
    s = padded.stride()
    windows = padded.as_strided(
        (window, window, n, down, across, c),
        (s[1], s[2], s[0], tile * s[1], tile * s[2], 1),
    ).reshape(window**2, -1)
    products = torch.bmm(torch.mm(by.to_window, windows).view(window**2, -1, c), kernel.at(tile))
    tiles = torch.mm(by.to_tile, products.view(window**2, -1))
    out = tiles.view(tile, tile, n, down, across, -1).permute(2, 3, 0, 4, 1, 5)
    out = out.reshape(n, down * tile, across * tile, -1)[:, :height, :width]
    return out.permute(0, 3, 1, 2)
