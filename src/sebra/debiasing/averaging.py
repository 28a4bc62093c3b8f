"""A running mean of a network's weights: what the last steps agree on, without their noise."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

_START = 10.0  # the first steps count more, so that the mean leaves the untrained weights


class WeightMean(AveragedModel):
    """The mean over about `horizon` steps, the latest weighing most, as `module`.

    Statistics of batch norms are averaged like weights; whole numbers are the network's own.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network, multi_avg_fn=self._take_in, use_buffers=True)
        self.horizon = 1.0

    @torch.no_grad()
    def _take_in(self, mean: Any, live: Any, _count: Any) -> None:
        if not mean[0].is_floating_point():
            torch._foreach_copy_(mean, live)
            return
        count = int(self.n_averaged)  # on the CPU: nobody waits for the device
        decay = min(math.exp(-1 / self.horizon), count / (_START + count))
        torch._foreach_lerp_(mean, live, 1 - decay)
