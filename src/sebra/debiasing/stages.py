"""Debiasing over discovered shortcuts: pairs across them, and draws that hold them in balance.

No method of the paper. A ranking says which samples are less spurious; stages say in which respect.
Every anchor is pulled towards samples of its class that break a shortcut it follows and pushed from
those that follow the same ones; anchors are drawn so that rare patterns of shortcuts count more.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from sebra.debiasing.contrastive import ContrastiveConfig, fit_pairs, partners_of
from sebra.debiasing.erm import Erm
from sebra.debiasing.method import Help, Method, TrainConfig, needed
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import weighted_draws
from sebra.engine.task import Task
from sebra.settings import Modes, setting
from sebra.values import check

_LEAST = 4  # samples of a class that a pattern needs to be one of its own


@dataclass(frozen=True)
class StagesConfig(ContrastiveConfig):
    """Contrast and balance over patterns of shortcuts."""

    MODES: ClassVar[Modes] = {
        "features": {"pairs": "buckets", "hard": 0.0},
        "scratch": {"ce_on": "positive", "denominator": "batch"},
    }

    rank_gap: int = 1
    denominator: str = "anchor"
    balance: float = setting(
        0.5, "how far patterns are evened out among anchors: 0 not at all, 1 fully"
    )
    pairs: str = setting(
        "patterns",
        "partners differ in the shortcuts they follow, or (`buckets`) in the ranking's buckets, "
        "which also grade the samples of one pattern; `rank_gap` then counts buckets",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks = {"balance": 0 <= self.balance <= 1, "pairs": self.pairs in ("patterns", "buckets")}
        check(self, checks)


class Stages(Method[StagesConfig]):
    """Contrastive pairs and balanced draws over the patterns of shortcuts that samples follow."""

    name = "stages"
    ranker = "peel"
    needs = frozenset({"ranking"})
    config_class = StagesConfig

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        cfg = self.config
        guide = needed(help.guide, "a ranking (--ranking)", self.name)
        if guide.stages is None:
            session.note("the ranking found no pattern (no stage columns): plain training")
            shared = {f.name: getattr(cfg, f.name) for f in fields(TrainConfig)}
            return Erm(TrainConfig(**shared)).fit(task, help, session)
        pattern = patterns(guide.stages, task.targets, _LEAST)
        level, gap = (pattern, 1) if cfg.pairs == "patterns" else (guide.bucket, cfg.rank_gap)
        partners = partners_of(task.targets, level, guide, cfg, gap, session)
        chances = pattern_chances(pattern, task.targets, cfg.balance)
        batch = min(cfg.batch, len(task))
        return fit_pairs(
            task,
            help,
            session,
            cfg,
            *partners,
            order=lambda generator: weighted_draws(chances, len(task), batch, generator),
        )


def patterns(stages: Tensor, targets: Tensor, least: int) -> Tensor:
    """0 for samples that follow every shortcut, rising with those they break, stronger ones first.

    A pattern that fewer than `least` samples of a class show is joined with the one before it.
    """
    powers = 2 ** torch.arange(stages.shape[1] - 1, -1, -1, device=stages.device)
    code = ((stages <= 0.5).long() * powers).sum(1)
    for c in targets.unique().tolist():  # type: ignore[no-untyped-call]
        here = targets == c
        counts = torch.bincount(code[here], minlength=2 ** stages.shape[1])
        kept = (counts >= least).nonzero().squeeze(1)
        if len(kept) == 0:
            continue
        place = torch.searchsorted(kept, code[here], right=True) - 1
        code[here] = kept[place.clamp_min(0)]
    return code


def pattern_chances(pattern: Tensor, targets: Tensor, balance: float) -> Tensor:
    """Drawing weights (on the CPU): classes even, patterns of a class evened out by `balance`."""
    pattern, targets = pattern.cpu(), targets.cpu()
    cell = targets * (int(pattern.max()) + 1) + pattern
    size = torch.bincount(cell).double()
    weight = size[cell] ** -balance
    total = torch.zeros(int(targets.max()) + 1, dtype=torch.float64).index_add_(0, targets, weight)
    return weight / total[targets]
