"""Empirical risk minimisation: plain cross-entropy, the model that cheats."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.heads import fit_head_once
from sebra.debiasing.method import Help, Method, TrainConfig, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.augment import Augment


class Erm(Method[TrainConfig]):
    """Cross-entropy on every sample once per epoch."""

    name = "erm"
    config_class = TrainConfig
    in_processes = True
    sees_patches = True

    def holds_out(self, over_features: bool) -> bool:
        return not over_features

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        if task.over_features:
            return fit_head_once(task, torch.ones(len(task)), help, session)
        cfg = self.config
        task = replace(task, augment=Augment(cfg.flip, cfg.crop))
        network = task.network()

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            logits = network(task.batch(index, rand))
            return F.cross_entropy(logits.float(), task.targets[index])

        trainer = make_trainer(task, network, cfg, loss)
        trainer.run(session, help.selector, lambda _: every_sample(task, cfg, trainer.generator))
        help.selector.restore(network)
        return network
