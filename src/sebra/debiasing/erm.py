"""Empirical risk minimisation: plain cross-entropy, the model that cheats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import Help, TrainConfig, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.augment import Augment


@dataclass(frozen=True)
class ErmConfig(TrainConfig):
    """Nothing beyond the training settings."""


class Erm:
    """Cross-entropy on every sample once per epoch."""

    name: ClassVar[str] = "erm"
    needs: ClassVar[frozenset[str]] = frozenset()
    config_class: ClassVar[type[TrainConfig]] = ErmConfig

    def __init__(self, config: ErmConfig) -> None:
        self.config = config

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        cfg = self.config
        task = replace(task, augment=Augment(cfg.flip, cfg.crop))
        network = task.network(hidden=cfg.hidden)

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            logits = network(task.batch(index, rand))
            return F.cross_entropy(logits.float(), task.targets[index])

        trainer = make_trainer(task, network, cfg, loss)
        trainer.run(session, help.selector, lambda _: every_sample(task, cfg, trainer.generator))
        help.selector.restore(network)
        return network
