"""Confusion-cell reweighting: what a cheat predicts becomes independent of the label.

Follows Zhao and Zhang, "Fine-Grained Class-Conditional Distribution Balancing for Debiased
Learning" (ICLR 2026), as its abstract and summaries tell it. A network is made to cheat in several
stages, each trained only on what the one before got right; its predictions stand for the unknown
attribute. Samples of the cell (label, prediction) get the weight that makes predictions as frequent
within every label as they are overall, and every label as frequent as the others. Open in what was
available, and chosen here: two stages of one epoch each, fresh networks, samples drawn by their
weights, and no cell counting more than a hundredfold of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import Help, Method, TrainConfig, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.resample import fit_draws

_MOST = 100.0  # times the mean weight


@dataclass(frozen=True)
class FgCcdbConfig(TrainConfig):
    """The network that cheats."""

    stages: int = setting(2, "more make the first network cheat more")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"stages": self.stages >= 1})


def cell_weights(targets: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """p(prediction) / p(label, prediction), by the cells of the confusion matrix (on the CPU).

    With them labels are equally frequent, and predictions within a label are as they are overall.
    """
    cells = (targets * classes + predicted).cpu()
    joint = torch.bincount(cells, minlength=classes**2).double().view(classes, classes)
    weights = (joint.sum(0) / joint.clamp_min(1.0)).flatten()[cells]
    return (weights / weights.mean()).clamp_max(_MOST)


class FgCcdb(Method[FgCcdbConfig]):
    """A network that cheats, then plain training on draws its predictions say nothing about."""

    name = "ccdb"
    config_class = FgCcdbConfig

    def holds_out(self, over_features: bool) -> bool:
        return not over_features

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        cheated = session.once("cheat", lambda: {"predicted": self._cheat(task, session)})
        weights = cell_weights(task.targets.cpu(), cheated["predicted"].cpu(), task.classes)
        return fit_draws(task, weights, self.config, help, session)

    def _cheat(self, task: Task, session: Session) -> Tensor:
        """What the network of the last stage predicts of every sample."""
        predicted = task.targets
        for stage in range(self.config.stages):
            right = (predicted == task.targets).nonzero().flatten()
            part = task.subset(right) if len(right) >= self.config.batch else task
            predicted = self._stage(task, part, stage, session)
        return predicted

    def _stage(self, task: Task, part: Task, stage: int, session: Session) -> Tensor:
        cfg = replace(self.config, epochs=1, start="zero")
        part = replace(part, augment=Augment(cfg.flip, cfg.crop))
        network = task.network(offset=1 + stage, hidden=cfg.hidden)

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            return F.cross_entropy(network(part.batch(index, rand)).float(), part.targets[index])

        trainer = make_trainer(part, network, cfg, loss, offset=1 + stage)
        order = lambda _: every_sample(part, cfg, trainer.generator)  # noqa: E731
        trainer.run(session, None, order, f"cheat {stage + 1}")
        with evaluating(network):
            return predict(network, task, torch.arange(len(task))).argmax(1)
