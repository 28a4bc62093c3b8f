"""3 x 3 convolutions with a quarter of the products (Winograd's F(4 x 4, 3 x 3)), for CPUs.

Libraries for CPUs compute such convolutions directly, near the limit of the processor; only fewer
products make them faster. The transforms cost as much as they save in narrow layers (few channels)
and in small maps (tiles of 4 x 4 that stick out), so `suits` says where it pays.
"""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor, nn

_NARROWEST, _WIDEST = 128, 256
_TILE, _WINDOW = 4, 6  # outputs per side of a tile, and the inputs they need


def _matrix(rows: str) -> Tensor:
    values = [[float(Fraction(v)) for v in row.split()] for row in rows.split(";")]
    return torch.tensor(values, dtype=torch.float64)


_INPUT = _matrix(
    "4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1"
)
_KERNEL = _matrix("1/4 0 0; -1/6 -1/6 -1/6; -1/6 1/6 -1/6; 1/24 1/12 1/6; 1/24 -1/12 1/6; 0 0 1")
_OUTPUT = _matrix("1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1")
# Both directions at once: one product with a small matrix instead of many sums over strides.
_TO_WINDOW = torch.kron(_INPUT, _INPUT).float()
_TO_TILE = torch.kron(_OUTPUT, _OUTPUT).float()


def suits(conv: nn.Conv2d) -> bool:
    """Whether this convolution can be and is worth being computed so."""
    plain = conv.kernel_size == (3, 3) and conv.stride == (1, 1) and conv.padding == (1, 1)
    plain = plain and conv.dilation == (1, 1) and conv.groups == 1
    return plain and all(
        _NARROWEST <= width <= _WIDEST for width in (conv.in_channels, conv.out_channels)
    )


def transformed(weight: Tensor) -> Tensor:
    """A kernel (out x in x 3 x 3) in the domain of the products: 36 x in x out."""
    out = torch.einsum("ia,jb,ocab->ijco", _KERNEL, _KERNEL, weight.double())
    return out.reshape(_WINDOW**2, weight.shape[1], weight.shape[0]).float().contiguous()


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """The convolution of `x` (n x c x h x w) with a `transformed` kernel, padding 1."""
    n, c, height, width = x.shape
    down, across = -(-height // _TILE), -(-width // _TILE)
    padded = x.new_zeros(n, down * _TILE + 2, across * _TILE + 2, c)
    padded[:, 1 : height + 1, 1 : width + 1] = x.permute(0, 2, 3, 1)
    s = padded.stride()
    windows = padded.as_strided(
        (_WINDOW, _WINDOW, n, down, across, c),
        (s[1], s[2], s[0], _TILE * s[1], _TILE * s[2], 1),
    ).reshape(_WINDOW**2, -1)
    products = torch.bmm(torch.mm(_TO_WINDOW, windows).view(_WINDOW**2, -1, c), kernel)
    tiles = torch.mm(_TO_TILE, products.view(_WINDOW**2, -1))
    out = tiles.view(_TILE, _TILE, n, down, across, -1).permute(2, 3, 0, 4, 1, 5)
    out = out.reshape(n, down * _TILE, across * _TILE, -1)[:, :height, :width]
    return out.permute(0, 3, 1, 2)
