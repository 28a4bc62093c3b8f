"""Where in the image a difference sits: class activation maps over a network's last feature map.

Two kinds of samples are told apart by a linear score over the pooled map, as a linear head over
frozen features tells classes apart (Zhou et al. 2016). The score is a sum over places, so every
place has its share of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sebra.engine.networks import Network
from sebra.engine.passes import evaluating

FINEST = 6  # cells a map should have each way; a coarser one says little
_BATCH = 16
_STIFFNESS = 1.0


def has_maps(network: nn.Module) -> bool:
    """Whether the network looks at images through convolutions, so that a place means something."""
    return any(isinstance(m, nn.Conv2d) for m in network.modules())


@torch.no_grad()
def feature_maps(network: Network, images: Tensor) -> Tensor:
    """The last maps of at least `FINEST` cells (n x channels x h x w), else the last there are."""
    last: dict[bool, Tensor] = {}  # fine enough or not; earlier maps are let go at once

    def keep(module: nn.Module, given: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.dim() == 4 and out.shape[-1] > 1:
            last[min(out.shape[-2:]) >= FINEST] = out

    leaves = [m for m in network.modules() if not any(m.children())]
    hooks = [m.register_forward_hook(keep) for m in leaves]
    parts = []
    try:
        with evaluating(network):
            for start in range(0, len(images), _BATCH):
                last.clear()
                network.embed(images[start : start + _BATCH])
                parts.append(last[True in last].float().clone())
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(parts)


def contrast_maps(maps: Tensor, follows: Tensor) -> Tensor:
    """Per image, where it shows what the images marked by `follows` have and the others lack.

    maps: n x channels x h x w. Returns n x h x w, not negative; 0 where nothing speaks for it.
    """
    pooled = maps.mean((2, 3))
    std, mean = torch.std_mean(pooled, dim=0, correction=0)
    scale = 1 / std.clamp_min(1e-6)
    z = (pooled - mean) * scale / pooled.shape[1] ** 0.5
    side = follows.float()
    # Both sides weigh the same, however many images they hold.
    weight = torch.where(
        follows, 0.5 / side.sum().clamp_min(1), 0.5 / (1 - side).sum().clamp_min(1)
    )
    target = (side - 0.5) * weight.sqrt()
    rows = z * weight.sqrt()[:, None]
    kernel = rows @ rows.T + _STIFFNESS / len(z) * torch.eye(len(z), device=z.device)
    direction = rows.T @ torch.linalg.solve(kernel, target)
    local = (maps - mean[None, :, None, None]) * scale[None, :, None, None]
    return torch.einsum("nchw,c->nhw", local, direction).clamp_min(0)


def averaged(maps: Tensor) -> Tensor:
    """The mean of several maps, from 0 to 1."""
    mean = maps.mean(0)
    low, high = mean.min(), mean.max()
    return (mean - low) / (high - low).clamp_min(1e-9)
