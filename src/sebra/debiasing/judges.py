"""The held-out samples that judge candidates, and what each of them counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sebra.debiasing.choosing import Jury, calibrated, groups_of
from sebra.debiasing.heads import judging
from sebra.debiasing.method import Guide, Pool
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task

LEAST = 4  # samples of a class and pattern that make a group of their own


@dataclass(frozen=True)
class Judges:
    """The samples that judge: their labels, which patterns they follow, how much each counts."""

    tasks: tuple[Task, ...]
    y: Tensor
    stages: Tensor | None
    ordinary: Tensor
    rows: Tensor  # of them, those that judge: all unless that would take too long
    seed: int
    classes: int

    @classmethod
    def all_of(cls, task: Task, guide: Guide | None, pool: Pool | None) -> Judges:
        """Every sample there is: cross-validation keeps them apart from what judges them."""
        stages = None if guide is None else guide.stages
        if pool is None or (stages is None) != (pool.stages is None):
            return cls._of((task,), stages, task, stages)
        if stages is None or pool.stages is None:
            return cls._of((task, pool.task), None, task, None)
        return cls._of((task, pool.task), torch.cat([stages, pool.stages]), task, stages)

    @classmethod
    def held_out(cls, task: Task, guide: Guide | None, pool: Pool) -> Judges:
        """The samples that no network has seen."""
        stages = None if guide is None else guide.stages
        known = None if stages is None else pool.stages
        return cls._of((pool.task,), known, task, None if known is None else stages)

    @classmethod
    def _of(
        cls, tasks: tuple[Task, ...], stages: Tensor | None, task: Task, theirs: Tensor | None
    ) -> Judges:
        y = torch.cat([t.targets for t in tasks]).cpu()
        stages = None if stages is None else stages.cpu()
        wanted = _cells(task.targets.cpu(), None if theirs is None else theirs.cpu())
        cells = _cells(y, stages)
        most = int(max(wanted.max(), cells.max())) + 1
        share, seen = (torch.bincount(c, minlength=most) / len(c) for c in (wanted, cells))
        ordinary = share[cells] / seen[cells]
        rows = judging(y, task.classes, task.seed)
        return cls(tasks, y, stages, ordinary, rows, task.seed, task.classes)

    @property
    def groups(self) -> Tensor:
        return self.y if self.stages is None else groups_of(self.stages, self.y, LEAST)

    def surprise_at(self, network: Network) -> float:
        """How badly calibrated probabilities of a network tell the class of these samples."""
        with evaluating(network):
            parts = [predict(network, t, torch.arange(len(t))) for t in self.tasks]
        return calibrated(torch.cat(parts), self.y, self.ordinary)

    @property
    def jury(self) -> Jury:
        return Jury(self.y[self.rows], self.groups[self.rows], self.ordinary[self.rows])


def _cells(y: Tensor, stages: Tensor | None) -> Tensor:
    """Class and pattern as a number that means the same in every set of samples."""
    if stages is None:
        return y
    powers = 2 ** torch.arange(stages.shape[1])
    code: Tensor = ((stages > 0.5).long() * powers).sum(1)
    return y * (1 << stages.shape[1]) + code
