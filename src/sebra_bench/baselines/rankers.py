"""Rankings to compare with: plain training, by when or how surely it knows a sample; chance."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from sebra.engine.passes import label_probability
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.ranking.ranking import Monitor, Ranker, RankResult
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker
from sebra.settings import StepConfig, setting
from sebra.values import check
from sebra_bench.baselines.neurons import NeuronsConfig, train


@dataclass(frozen=True)
class ErmConfig(SebraConfig):
    """Plain training, whole epochs: no upweighting, nobody set aside (the ablation's first row)."""

    use_u: bool = False
    use_v: bool = False
    resolution: str = "epoch"
    by: str = setting(
        "first",
        "`first` ranks by the epoch in which a sample is learned, `last` by the probability of its "
        "label after the last epoch, when most are known by heart",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"by": self.by in ("first", "last")})


class ErmRanker(SelfGuidedRanker):
    """Bucket = first epoch in which a sample's p_y passes the threshold under plain training."""

    config_class = ErmConfig

    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult:
        cfg = self.config
        assert isinstance(cfg, ErmConfig)
        if cfg.by == "first":
            return super().rank(task, session, monitor)
        step = {f.name: getattr(cfg, f.name) for f in fields(StepConfig)}
        network, shown = task.network(), replace(task, augment=Augment(cfg.flip, cfg.crop))
        train(NeuronsConfig(**step, epochs=cfg.epochs), shown, network, session, monitor)
        p = label_probability(network, task, torch.arange(len(task))).cpu().numpy()
        return RankResult(bucket=np.zeros(len(task), dtype=np.int64), score=p, p=p)


@dataclass(frozen=True)
class RandomConfig:
    """No settings: the seed decides."""


class RandomRanker(Ranker[RandomConfig]):
    """A uniformly random order, one bucket per sample."""

    config_class = RandomConfig

    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult:
        order = torch.randperm(len(task), generator=task.generator()).numpy()
        return RankResult(bucket=order.astype(np.int64), score=np.zeros(len(task)))
