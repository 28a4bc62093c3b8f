"""Learning from failure: a network made to cheat shows the other one which samples are hard.

Follows Nam, Cha, Ahn, Lee and Shin, "Learning from Failure: Training Debiased Classifier from
Biased Classifier" (NeurIPS 2020), Algorithm 1, and its published runs where the paper is silent:
the relative difficulty is taken from moving averages of both losses, each divided by the largest of
the class. It departs from those runs in one constant: their generalised cross-entropy has another
factor q, which the paper's equation does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import Help, Method, TrainConfig, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import make_optimizer
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.losses.gce import generalised_cross_entropy

_MEMORY = 0.7  # of a moving average that stays with a new value, as published


@dataclass(frozen=True)
class LffConfig(TrainConfig):
    """The biased network's loss."""

    q: float = setting(0.7, "larger lets the biased network learn easy samples the more")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"q": 0 < self.q <= 1})


class RunningLoss:
    """A moving average of every sample's loss; the first value counts in full."""

    def __init__(self, targets: Tensor, classes: int, memory: float) -> None:
        self.targets = targets
        self.memory = memory
        self.value = torch.zeros(len(targets), device=targets.device)
        self.seen = torch.zeros_like(self.value)
        self._largest = torch.zeros(classes, device=targets.device)

    def update(self, index: Tensor, losses: Tensor) -> None:
        kept = self.memory * self.value[index]
        self.value.index_copy_(0, index, kept + (1 - self.memory * self.seen[index]) * losses)
        self.seen.index_fill_(0, index, 1.0)

    def relative(self, index: Tensor) -> Tensor:
        """The averages of `index` as shares of the largest in their class."""
        largest = self._largest.scatter_reduce(0, self.targets, self.value, "amax")
        return self.value[index] / largest[self.targets[index]].clamp_min(1e-8)


def relative_difficulty(biased: Tensor, debiased: Tensor) -> Tensor:
    """W(x): near 1 where the biased network fails and the debiased one does not."""
    return biased / (biased + debiased + 1e-8)


class Lff(Method[LffConfig]):
    """Two networks side by side; the debiased one is the result."""

    name = "lff"
    config_class = LffConfig

    def __init__(self, config: LffConfig) -> None:
        super().__init__(config)
        self.weights = torch.empty(0)

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        """Trains both. Afterwards `weights` holds the last weight of every sample."""
        cfg = self.config
        task = replace(task, augment=Augment(cfg.flip, cfg.crop))
        network = task.network(hidden=cfg.hidden)
        biased = task.network(offset=1, hidden=cfg.hidden)
        biased.train()
        hard_biased = RunningLoss(task.targets, task.classes, _MEMORY)
        hard_debiased = RunningLoss(task.targets, task.classes, _MEMORY)
        self.weights = weights = torch.zeros(len(task), device=task.device)

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            x, y = task.batch(index, rand), task.targets[index]
            from_biased, from_debiased = biased(x).float(), network(x).float()
            losses = F.cross_entropy(from_debiased, y, reduction="none")
            with torch.no_grad():
                hard_biased.update(index, F.cross_entropy(from_biased, y, reduction="none"))
                hard_debiased.update(index, losses)
                w = relative_difficulty(hard_biased.relative(index), hard_debiased.relative(index))
                weights.index_copy_(0, index, w)
            return generalised_cross_entropy(from_biased, y, cfg.q).mean() + (w * losses).mean()

        cheat = make_optimizer(biased, cfg.optimizer, cfg.lr, cfg.weight_decay, cfg.momentum)
        extra = {
            "biased": biased,
            "biased_optimizer": cheat,
            "biased_loss": hard_biased.value,
            "debiased_loss": hard_debiased.value,
            "seen": hard_biased.seen,
            "seen_debiased": hard_debiased.seen,
            "weights": weights,
        }
        trainer = make_trainer(task, network, cfg, loss, extra=extra)
        trainer.step.optimizers.append(cheat)

        trainer.run(session, help.selector, lambda _: every_sample(task, cfg, trainer.generator))
        help.selector.restore(network)
        return network
