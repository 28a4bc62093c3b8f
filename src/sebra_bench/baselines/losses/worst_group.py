"""The two halves of group DRO: the loss of each group, and the weights that chase the worst."""

from __future__ import annotations

import torch
from torch import Tensor


def group_losses(losses: Tensor, groups: Tensor, count: int) -> Tensor:
    """Mean loss of each of `count` groups in the batch; a group that is absent has 0."""
    member = (groups[:, None] == torch.arange(count, device=groups.device)).to(losses.dtype)
    return (member * losses[:, None]).sum(0) / member.sum(0).clamp_min(1.0)


@torch.no_grad()
def chase_worst(weights: Tensor, losses: Tensor, eta: float) -> None:
    """Exponentiated-gradient ascent on the group weights, in place; they go on summing to 1."""
    weights.mul_(torch.exp(eta * losses))
    weights.div_(weights.sum())
