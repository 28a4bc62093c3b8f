"""Groups of training samples, from true attributes or from a ranking."""

from __future__ import annotations

import torch
from torch import Tensor

from sebra.debiasing.method import Guide, needed


def within_class(parts: Tensor, targets: Tensor) -> Tensor:
    """Group numbers 0, 1, … for every combination of class and part that occurs."""
    parts = parts - parts.min()
    groups: Tensor = torch.unique(targets * (parts.max() + 1) + parts, return_inverse=True)[1]
    return groups


def bucket_groups(guide: Guide, targets: Tensor, parts: int = 0) -> Tensor:
    """Class x rank bucket.

    With `parts`, neighbouring buckets of a class are merged into at most that many groups, each of
    about as many buckets: late buckets hold few samples, and a group of two has no mean loss.
    """
    part = torch.zeros_like(targets)
    for c in targets.unique().tolist():  # type: ignore[no-untyped-call]
        here = targets == c
        levels, position = torch.unique(guide.bucket[here], return_inverse=True)
        wanted = min(parts or len(levels), len(levels))
        part[here] = position.to(part.dtype) * wanted // len(levels)
    return within_class(part, targets)


def stage_groups(guide: Guide, targets: Tensor, method: str) -> Tensor:
    """Class x which of the discovered biases a sample follows (alignment above one half)."""
    stages = needed(guide.stages, "a ranking with stage columns", method)
    bits = (stages > 0.5).long()
    powers = 2 ** torch.arange(bits.shape[1], device=bits.device)
    return within_class((bits * powers).sum(1), targets)


def even_weights(groups: Tensor, targets: Tensor) -> Tensor:
    """Sampling weights (on the CPU): every class the same mass, within it every group the same."""
    groups, targets = groups.cpu(), targets.cpu()
    size = torch.bincount(groups).double()
    pairs = torch.unique(torch.stack([targets, groups]), dim=1)
    depth = torch.bincount(pairs[0]).double()
    return 1.0 / (size[groups] * depth[targets])


def balanced_weights(groups: Tensor) -> Tensor:
    """Weights that give every group the same mass."""
    groups = groups.cpu()
    counts = torch.bincount(groups).clamp_min(1)
    return 1.0 / counts[groups].double()
