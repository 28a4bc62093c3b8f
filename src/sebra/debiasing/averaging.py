"""A running mean of a network's weights: what the last steps agree on, without their noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sebra.engine import distributed

_START = 10.0  # the first steps count more, so that the mean leaves the untrained weights


class WeightMean:
    """The mean over the last steps, the latest weighing most.

    Statistics of batch norms are averaged like weights; whole numbers stay the network's own.
    """

    def __init__(self, network: nn.Module) -> None:
        self._live = list(network.state_dict().values())
        self._mean = [t.detach().clone() for t in self._live]
        self._floats = [i for i, t in enumerate(self._live) if t.is_floating_point()]
        self._count = 0

    @torch.no_grad()
    def update(self, steps: float) -> None:
        """Takes in the weights of one more step, for a mean over about `steps` of them.

        Does not wait for the device.
        """
        self._count += 1
        decay = min(math.exp(-1 / steps), self._count / (_START + self._count))
        mean = [self._mean[i] for i in self._floats]
        live = [self._live[i] for i in self._floats]
        torch._foreach_lerp_(mean, live, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The network holds the mean inside this block, and its own weights again after it."""
        own = [t.detach().clone() for t in self._live]
        mean = list(own)
        for i in self._floats:
            mean[i] = self._mean[i]
        distributed.average([mean[i] for i in self._floats])  # each process has its own statistics
        self._put(mean)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for target, value in zip(self._live, values, strict=True):
            target.copy_(value)

    def state_dict(self) -> dict[str, object]:
        return {"mean": self._mean, "count": self._count}

    def load_state_dict(self, state: dict[str, object]) -> None:
        mean = state["mean"]
        assert isinstance(mean, list)
        with torch.no_grad():
            for target, value in zip(self._mean, mean, strict=True):
                target.copy_(value)
        self._count = int(str(state["count"]))
