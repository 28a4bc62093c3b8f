"""The supervised contrastive loss over rank pairs (paper, section 3.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_loss(
    anchor: Tensor, positives: Tensor, negatives: Tensor, tau: float, denominator: str = "anchor"
) -> Tensor:
    """Mean over anchors and positives of -log(e^(z·z+/tau) / (sum_m e^(z·z+_m/tau) + sum_n …)).

    anchor: n x d; positives: n x M x d; negatives: n x N x d; all are normalised to length 1 here.
    denominator: `anchor` sums over the anchor's own pairs as in the formula; `batch` sums over all
    pairs of the batch, as the published runs do.
    """
    z = F.normalize(anchor.float(), dim=-1)
    to_positive = torch.einsum("nd,nmd->nm", z, F.normalize(positives.float(), dim=-1)) / tau
    to_negative = torch.einsum("nd,nmd->nm", z, F.normalize(negatives.float(), dim=-1)) / tau
    both = torch.cat([to_positive, to_negative], dim=1)
    if denominator == "batch":
        log_sum = torch.logsumexp(both.flatten(), dim=0)
    else:
        log_sum = torch.logsumexp(both, dim=1, keepdim=True)
    return (log_sum - to_positive).mean()
