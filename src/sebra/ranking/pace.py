"""Rank resolution: how many steps pass between two selections.

With too large a step a single epoch carries nearly every sample over the threshold and the ranking
has one bucket. The pace works as step-size control does in a solver: a round that would learn more
than `max_share` of the samples is taken back and repeated with half the steps, then with half the
learning rate; a round that learns little is followed by a longer one, up to a full epoch. When
epoch after epoch nobody is learned at all, the step was too small, and it grows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sebra.engine.step import set_lr

_MIN_LR_SHARE = 1 / 256
_MAX_LR_SHARE = 64


class Pace:
    """Steps per round and learning rate, adapted to the number of samples learned."""

    def __init__(
        self, steps_per_epoch: int, samples: int, max_share: float, lr: float, adaptive: bool
    ) -> None:
        self.full = steps_per_epoch
        self.limit = max(1, int(max_share * samples))
        self.lr = lr
        self.adaptive = adaptive
        # Everything that changes, in one tensor, so that a checkpoint keeps it:
        # steps, share of the rate, epochs spent, shortest round (0: none was shortened), rounds.
        self.state = torch.tensor([steps_per_epoch, 1, 0, 0, 0], dtype=torch.float64)

    @property
    def steps(self) -> int:
        return int(self.state[0])

    @property
    def rate_share(self) -> float:
        return float(self.state[1])

    @property
    def epochs_spent(self) -> float:
        return float(self.state[2])

    @property
    def shortest(self) -> int:
        """Steps of the shortest round that a rejected one was cut to; 0 where none was."""
        return int(self.state[3])

    @property
    def rounds(self) -> int:
        return int(self.state[4])

    def spend(self, steps: int, whole: int) -> None:
        """A round of `steps` was taken, out of `whole` that an epoch has now."""
        self.state[2] += steps / whole
        self.state[4] += 1

    def accepts(self, learned: int, optimizer: torch.optim.Optimizer) -> bool:
        """Whether a round that learned so many samples stands; shrinks the pace if not."""
        if not self.adaptive or learned <= self.limit:
            return True
        if self.steps > 1:
            self.state[0] = max(1, self.steps // 2)
        elif self.rate_share > _MIN_LR_SHARE:
            self.state[1] *= 0.5
            set_lr(optimizer, self.lr * self.rate_share)
        else:
            return True
        self.state[3] = min(self.shortest or self.full, self.steps)
        return False

    def lengthen(self, learned: int, optimizer: torch.optim.Optimizer) -> None:
        """After a round that learned little: a longer one next, then a larger step again."""
        if not self.adaptive or learned > self.limit // 4:
            return
        if self.rate_share < 1.0:
            self.state[1] = min(1.0, self.rate_share * 2)
            set_lr(optimizer, self.lr * self.rate_share)
        elif self.steps < self.full:
            self.state[0] = min(self.full, self.steps * 2)

    def hasten(self, optimizer: torch.optim.Optimizer) -> None:
        """Nobody is learned yet and the patience is over: a step twice as large from here on."""
        if self.adaptive and self.steps == self.full and self.rate_share < _MAX_LR_SHARE:
            self.state[1] *= 2
            set_lr(optimizer, self.lr * self.rate_share)


class Snapshot:
    """Network and optimiser as they were, restored in place (a captured graph stays valid)."""

    def __init__(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._network = network
        self._optimizer = optimizer
        self._weights = {k: v.clone() for k, v in network.state_dict().items()}
        self._state = {
            p: {k: v.clone() if isinstance(v, Tensor) else v for k, v in s.items()}
            for p, s in optimizer.state.items()
        }

    @torch.no_grad()
    def restore(self) -> None:
        current = self._network.state_dict()
        for name, value in self._weights.items():
            current[name].copy_(value)
        for parameter, state in self._optimizer.state.items():
            saved = self._state.get(parameter, {})
            for key, value in state.items():
                if isinstance(value, Tensor):
                    value.copy_(saved[key]) if key in saved else value.zero_()
                elif key in saved:
                    state[key] = saved[key]
