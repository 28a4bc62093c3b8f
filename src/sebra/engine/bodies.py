"""Bodies of our own for pictures: small convolutions from scratch, fixed random ones."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


def small_body(widths: tuple[int, ...] = (32, 64, 96, 128)) -> tuple[nn.Module, int]:
    """Convolutions of stride two for images of about 28 to 64 pixels.

    The last map is a few cells wide, so that each cell sees most of the picture: a shape is a
    feature here and not only its parts.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((3, *widths)):
        conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), widths[-1]


class RandomBody(nn.Module):
    """Fixed random convolutions, pooled three ways: what, what is central, what stands out.

    The mean and the middle cell of the last map tell large shapes and colours; the largest response
    of an early layer tells small things anywhere in the picture.
    """

    def __init__(self, widths: tuple[int, ...] = (48, 96, 192, 256), early: int = 2) -> None:
        super().__init__()
        self.width = 2 * widths[-1] + widths[early - 1]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((3, *widths)):
            conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            assert conv.bias is not None
            nn.init.normal_(conv.bias, std=0.1)
            layers.append(nn.Sequential(conv, nn.ReLU(inplace=True)))
        self.early = nn.Sequential(*layers[:early])
        self.late = nn.Sequential(*layers[early:])

    def forward(self, x: Tensor) -> Tensor:
        early = self.early(x)
        late = self.late(early)
        middle = nn.functional.adaptive_avg_pool2d(late, 3)[:, :, 1, 1]
        return torch.cat([late.mean((2, 3)), middle, early.amax((2, 3))], dim=1)


def random_body() -> tuple[nn.Module, int]:
    """Features without any training, for frozen use only.

    Enough for the built-in data set and other tiny pictures; needs neither a download nor a GPU.
    """
    body = RandomBody()
    return body, body.width
