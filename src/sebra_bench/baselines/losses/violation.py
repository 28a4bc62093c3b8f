"""Equal-opportunity violation: how unequally a classifier treats two groups of the same class.

`confidence` is the classifier's probability of the sample's own class, `assigned` the discoverer's
probability that the sample belongs to the first of two groups. Everything is per class over the
batch; a class that is absent from the batch counts for nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

_EPS = 1e-6


def discovery_loss(
    confidence: Tensor, assigned: Tensor, targets: Tensor, classes: int, balance: float = 1.0
) -> Tensor:
    """What the discoverer minimises: `-log` of the violation, and of how even the two groups are.

    The second term, weighted by `balance`, keeps it from putting a whole class into one group.
    """
    member = _members(targets, classes)
    first, second = _mean_confidence(confidence, assigned, member)
    violation = -torch.log(_EPS + (first - second).abs())
    count = member.sum(0)
    share = (member * assigned[:, None]).sum(0) / count.clamp_min(1.0)
    unbalance = -torch.log(_EPS + 1.0 - (2.0 * share - 1.0).abs())
    present = (count > 0).to(confidence.dtype)
    return ((violation + balance * unbalance) * present).sum() / present.sum()


@torch.no_grad()
def conflict_weights(confidence: Tensor, assigned: Tensor, targets: Tensor, classes: int) -> Tensor:
    """1 + the probability of being in the group that the classifier treats worse, per sample."""
    first, second = _mean_confidence(confidence, assigned, _members(targets, classes))
    first_is_better = (second < first)[targets]
    return 1.0 + torch.where(first_is_better, 1.0 - assigned, assigned)


def _members(targets: Tensor, classes: int) -> Tensor:
    return (targets[:, None] == torch.arange(classes, device=targets.device)).float()


def _mean_confidence(confidence: Tensor, assigned: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Mean confidence of each class in the first and in the second group."""

    def mean(weight: Tensor) -> Tensor:
        mass = member * weight[:, None]
        return (mass * confidence[:, None]).sum(0) / (mass.sum(0) + _EPS)

    return mean(assigned), mean(1.0 - assigned)
