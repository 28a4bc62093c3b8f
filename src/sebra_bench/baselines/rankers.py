"""Rankings to compare with: the first epoch over the threshold in plain training, and chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.ranking.ranking import Monitor, Ranker, RankResult
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker


@dataclass(frozen=True)
class ErmConfig(SebraConfig):
    """Plain training, whole epochs: no upweighting, nobody set aside (the ablation's first row)."""

    use_u: bool = False
    use_v: bool = False
    resolution: str = "epoch"


class ErmRanker(SelfGuidedRanker):
    """Bucket = first epoch in which a sample's p_y passes the threshold under plain training."""

    config_class = ErmConfig


@dataclass(frozen=True)
class RandomConfig:
    """No settings: the seed decides."""


class RandomRanker(Ranker[RandomConfig]):
    """A uniformly random order, one bucket per sample."""

    config_class = RandomConfig

    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult:
        order = torch.randperm(len(task), generator=task.generator()).numpy()
        return RankResult(bucket=order.astype(np.int64), score=np.zeros(len(task)))
