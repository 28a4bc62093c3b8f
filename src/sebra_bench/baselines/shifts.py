"""Distribution shifts that anyone's data can undergo, as cheap operations on the device.

Each takes a batch (float images of 0..255, features or token rows) and uniform numbers, and returns
a batch of the same shape. None of them knows which shortcut the data have.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.engine.networks import Network

Shift = Callable[[Tensor, Tensor], Tensor]
RANDOMS = 4  # uniform numbers per sample that a shift may use
_BANK = 256


def image_shifts(strength: float) -> dict[str, Shift]:
    """colour, texture (blurred away), an erased patch, other surroundings."""
    return {
        "colour": lambda x, r: colour(x, r, strength),
        "blur": lambda x, r: blur(x, r, strength),
        "erase": lambda x, r: erase(x, r, strength),
        "surround": lambda x, r: surround(x, r, strength),
    }


def colour(x: Tensor, rand: Tensor, strength: float) -> Tensor:
    """Less saturation and another gain for each channel."""
    column = rand[:, :, None, None]
    grey = x.mean(1, keepdim=True)
    gain = 1.0 + strength * (2.0 * column[:, 1:4] - 1.0)
    return ((grey + (x - grey) * (1.0 - column[:, :1])) * gain).clamp(0.0, 255.0)


def blur(x: Tensor, rand: Tensor, strength: float) -> Tensor:
    """A box blur whose width is a share of the picture's; it takes texture away."""
    width = 2 * max(1, round(strength * x.shape[-1] / 16)) + 1
    smooth = F.avg_pool2d(x, width, stride=1, padding=width // 2, count_include_pad=False)
    return torch.lerp(x, smooth, 0.5 + 0.5 * rand[:, :1, None, None])


def erase(x: Tensor, rand: Tensor, strength: float) -> Tensor:
    """A square anywhere in the picture is filled with the picture's mean colour."""
    inside = _box(x, rand[:, 0], rand[:, 1], strength * (0.5 + 0.5 * rand[:, 2]) / 2)
    return torch.where(inside, x.mean((2, 3), keepdim=True), x)


def surround(x: Tensor, rand: Tensor, strength: float) -> Tensor:
    """All but the middle comes from the next picture of the batch."""
    middle = torch.full_like(rand[:, 0], 0.5)
    inside = _box(x, middle, middle, (1.0 - strength * (0.5 + 0.5 * rand[:, 0])) / 2)
    return torch.where(inside, x, x.roll(1, 0))


def _box(x: Tensor, down: Tensor, across: Tensor, half: Tensor) -> Tensor:
    """n x 1 x h x w: is the pixel within `half` of the centre (shares of the picture)?"""
    ys = (torch.arange(x.shape[2], device=x.device) + 0.5) / x.shape[2]
    xs = (torch.arange(x.shape[3], device=x.device) + 0.5) / x.shape[3]
    tall = (ys[None] - down[:, None]).abs() < half[:, None]
    wide = (xs[None] - across[:, None]).abs() < half[:, None]
    return (tall[:, :, None] & wide[:, None, :])[:, None]


def text_shifts(
    strength: float, length: int, generator: torch.Generator, device: torch.device
) -> dict[str, Shift]:
    """hidden words anywhere, and a hidden beginning or end: the encoder does not see them.

    A sequence's first token is never hidden, so that something is left to see.
    """
    masks = (torch.rand((_BANK, length), generator=generator) < strength).to(device)
    places = torch.arange(length, device=device)[None]

    def hide(x: Tensor, hidden: Tensor) -> Tensor:
        keep = (~hidden).to(x.dtype)[:, None, :]
        keep[:, :, 0] = 1
        seen = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
        seen[1::3] = True  # of each sequence's ids, mask and types the mask
        return torch.where(seen[None, :, None], x * keep, x)

    def words(x: Tensor, rand: Tensor) -> Tensor:
        row = (rand[:, 0] * _BANK).long().clamp(max=_BANK - 1)
        return hide(x, masks[row])

    def half(x: Tensor, rand: Tensor, end: bool) -> Tensor:
        used = x[:, 1].sum(1, keepdim=True)
        cut = used * strength * rand[:, :1]
        return hide(x, places >= used - cut if end else places < cut)

    return {
        "words": words,
        "beginning": lambda x, r: half(x, r, end=False),
        "end": lambda x, r: half(x, r, end=True),
    }


def feature_shifts(
    strength: float, network: Network, generator: torch.Generator
) -> dict[str, Shift]:
    """noise, dropped features, features of another sample.

    Noise and masks come from a bank of random rows, so that a sample needs one random number and
    not one per feature.
    """
    mean = network.shift
    spread = 1.0 / (network.scale * mean.shape[1] ** 0.5)  # undoes `standardise`
    shape = (_BANK, mean.shape[1])
    noise = torch.randn(shape, generator=generator).to(mean.device) * strength * spread
    masks = (torch.rand(shape, generator=generator) < strength).to(mean.device)

    def row(rand: Tensor) -> Tensor:
        return (rand[:, 0] * _BANK).long().clamp(max=_BANK - 1)

    return {
        "noise": lambda x, r: x + noise[row(r)],
        "drop": lambda x, r: torch.where(masks[row(r)], mean, x),
        "swap": lambda x, r: torch.where(masks[row(r)], x.roll(1, 0), x),
    }
