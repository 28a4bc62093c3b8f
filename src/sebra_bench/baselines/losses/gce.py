"""Generalised cross-entropy, the loss that trusts the samples it already gets right."""

from __future__ import annotations

import torch
from torch import Tensor


def generalised_cross_entropy(logits: Tensor, targets: Tensor, q: float) -> Tensor:
    """`(1 - p_y^q) / q` per sample (Zhang and Sabuncu 2018, equation 6).

    Its gradient is that of cross-entropy times `p_y^q`: easy samples count more. Towards q = 0 it
    is cross-entropy, at q = 1 the mean absolute error.
    """
    log_p = logits.float().log_softmax(1).gather(1, targets[:, None]).squeeze(1)
    return -torch.expm1(q * log_p) / q
