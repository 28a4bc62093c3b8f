"""One network that is trained again and again, each time as if it were new."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import TrainStep, make_optimizer, set_back, train_epoch, weighted_draws
from sebra.engine.task import Task
from sebra.ranking.formulas import weighted_loss

_PART = 50  # steps between two looks at the clock and the checkpoint

State = dict[str, Tensor]


class Retrained:
    """Trains with the `u` weighting of the ranking objective, on weighted draws.

    A network is built once for every fold and never again; all trainings share one captured step.
    """

    def __init__(self, task: Task, session: Session, config: Any, batch: int) -> None:
        self.task, self.session, self.config, self.batch = task, session, config, batch
        self._starts: dict[int, State] = {}  # per fold, the network before training
        self.network = self._built(0)
        self.network.train()
        self._optimizer = make_optimizer(
            self.network, config.optimizer, config.lr, config.weight_decay, config.momentum
        )
        self._y = task.targets.clone()
        self._step = TrainStep(
            self.network, self._optimizer, self._loss, task.device, randoms=task.randoms
        )

    def train(self, targets: Tensor, weights: Tensor, rows: Tensor, k: int) -> Network:
        """The network, trained as fold `k` on samples `rows`; good until the next training."""
        if k not in self._starts:
            self._built(k)
        set_back(self.network, self._optimizer, self._starts[k])
        self.network.train()
        self._y.copy_(targets)
        cfg, generator = self.config, self.task.generator(101 + k)
        state = {"network": self.network, "optimizer": self._optimizer, "generator": generator}
        parts, begun = -(-cfg.steps // _PART), False
        for part in self.session.phase(f"fold {k + 1}", parts, state):
            if part and not begun:  # a checkpoint has given the optimiser other tensors
                self._step.recapture()
            begun = True
            draws = min(_PART, cfg.steps - part * _PART) * self.batch
            drawn = rows[weighted_draws(weights[rows], draws, self.batch, generator)]
            train_epoch(self._step, drawn, generator)
        return self.network

    def _built(self, k: int) -> Network:
        network = self.task.network(offset=k)
        self._starts[k] = state_of(network)
        return network

    def _loss(self, index: Tensor, rand: Tensor) -> Tensor:
        logits = self.network(self.task.batch(index, rand))
        return weighted_loss(logits, self._y[index], self.config.beta)


def state_of(network: Network) -> State:
    """What the network holds now, off the device."""
    return {k: torch.clone(v.detach().cpu()) for k, v in network.state_dict().items()}
