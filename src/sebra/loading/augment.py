"""Augmentation on the device, driven by random numbers that are drawn outside the training step.

Passing the uniform numbers in keeps the step free of random state: the same draws give the same
batch on a CPU, on a GPU and inside a captured CUDA graph, and a resumed run repeats them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Augment:
    """Which augmentations a training batch gets.

    flip: mirror horizontally with probability one half.
    crop: smallest share of the area that a random resized crop keeps; 1 means no crop.
    """

    flip: bool = False
    crop: float = 1.0

    @property
    def randoms(self) -> int:
        """Uniform numbers needed per sample."""
        return (1 if self.flip else 0) + (4 if self.crop < 1.0 else 0)

    def __call__(self, images: Tensor, rand: Tensor) -> Tensor:
        """Augments `images` (n x c x h x w) with `rand` (n x at least `randoms`) from [0, 1)."""
        if self.crop < 1.0:
            flip = rand[:, 4] < 0.5 if self.flip else torch.zeros_like(rand[:, 0], dtype=torch.bool)
            return _resized_crop(images, rand[:, :4], flip, self.crop)
        if self.flip:
            mirror = (rand[:, 0] < 0.5)[:, None, None, None]
            return torch.where(mirror, images.flip(3), images)
        return images


def _resized_crop(images: Tensor, rand: Tensor, flip: Tensor, least: float) -> Tensor:
    """Random crop of area share in [least, 1], aspect 3/4 to 4/3, resized back; maybe mirrored."""
    area = least + (1.0 - least) * rand[:, 0]
    ratio = torch.exp((rand[:, 1] * 2 - 1) * 0.2876820724517809)  # ln(4/3)
    width = (area * ratio).sqrt().clamp(max=1.0)
    height = (area / ratio).sqrt().clamp(max=1.0)
    theta = torch.zeros(images.shape[0], 2, 3, device=images.device, dtype=torch.float32)
    theta[:, 0, 0] = torch.where(flip, -width, width)
    theta[:, 1, 1] = height
    theta[:, 0, 2] = (rand[:, 2] * 2 - 1) * (1 - width)
    theta[:, 1, 2] = (rand[:, 3] * 2 - 1) * (1 - height)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(
        images.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )
