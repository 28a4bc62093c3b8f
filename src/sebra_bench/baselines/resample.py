"""Resampling by a ranking: every rank bucket of a class is drawn equally often.

The simplest use of a ranking, and no method of the paper: cross-entropy on draws in which the few
least spurious samples of a class weigh as much as the many most spurious ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.heads import fit_head_once
from sebra.debiasing.method import Help, Method, TrainConfig, make_trainer, needed
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import weighted_draws
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.grouping import bucket_groups, even_weights, stage_groups


@dataclass(frozen=True)
class ResampleConfig(TrainConfig):
    """What is drawn in balance."""

    by: str = setting(
        "bucket", "the groups drawn alike: rank buckets, or (`stages`) the discovered patterns"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"by": self.by in ("bucket", "stages")})


class Resample(Method[ResampleConfig]):
    """Cross-entropy; every class has the same mass, and within it every bucket."""

    name = "resample"
    needs = frozenset({"ranking"})
    config_class = ResampleConfig
    in_processes = True
    sees_patches = True

    def __init__(self, config: ResampleConfig) -> None:
        super().__init__(config)
        self.ranker = "peel" if config.by == "stages" else "sebra"  # where no ranking is given

    def holds_out(self, over_features: bool) -> bool:
        return not over_features

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        return fit_draws(task, self.chances(task, help), self.config, help, session)

    def chances(self, task: Task, help: Help) -> Tensor:
        """How likely each sample is to be drawn, up to a factor."""
        guide = needed(help.guide, "a ranking (--ranking)", self.name)
        if self.config.by == "stages":
            groups = stage_groups(guide, task.targets, self.name)
        else:
            groups = bucket_groups(guide, task.targets)
        return even_weights(groups, task.targets)


def fit_draws(
    task: Task, chances: Tensor, cfg: TrainConfig, help: Help, session: Session
) -> Network:
    """Cross-entropy on samples drawn in proportion to their chances (on the CPU)."""
    if task.over_features:
        return fit_head_once(task, chances, help, session)
    task = replace(task, augment=Augment(cfg.flip, cfg.crop))
    network = task.network()
    batch = min(cfg.batch, len(task))

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        logits = network(task.batch(index, rand))
        return F.cross_entropy(logits.float(), task.targets[index])

    trainer = make_trainer(task, network, cfg, loss)
    trainer.run(
        session,
        help.selector,
        lambda _: weighted_draws(chances, len(task), batch, trainer.generator),
    )
    help.selector.restore(network)
    return network
