"""The held-out samples that judge candidates, and what each of them counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sebra.debiasing.choosing import Jury, ahead, even, groups_of, how_sure
from sebra.debiasing.heads import judging
from sebra.debiasing.method import Guide, Pool
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task

SURE = 1.64  # standard errors: chance says so once in twenty times
LEAST = 2  # samples of a class and pattern make a group: one may teach while the other judges


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
        own, more = (None if given is None else given.stages for given in (guide, pool))
        tasks = (task,) if pool is None or (own is None) != (more is None) else (task, pool.task)
        stages = own if own is None or more is None or len(tasks) == 1 else torch.cat([own, more])
        y = torch.cat([t.targets for t in tasks]).cpu()
        # What a model costs is told by samples that are drawn like the training set for sure.
        ordinary = (torch.arange(len(y)) < len(task)).float()
        stages = None if stages is None else stages.cpu()
        rows = judging(y, task.classes, task.seed)
        return cls(tasks, y, stages, ordinary, rows, task.seed, task.classes)

    @classmethod
    def held_out(cls, task: Task, pool: Pool, drawn: Pool | None) -> Judges:
        """The samples that no network has seen. Those drawn like the training set tell costs."""
        pools = (pool,) if drawn is None else (pool, drawn)
        known = [p.stages for p in pools if p.stages is not None]
        stages = torch.cat(known).cpu() if len(known) == len(pools) else None
        y = torch.cat([p.task.targets for p in pools]).cpu()
        ordinary = torch.ones(len(y))
        if drawn is not None:
            ordinary[: len(pool.task)] = 0.0
        rows = judging(y, task.classes, task.seed)
        tasks = tuple(p.task for p in pools)
        return cls(tasks, y, stages, ordinary, rows, task.seed, task.classes)

    @property
    def groups(self) -> Tensor:
        return self.y if self.stages is None else groups_of(self.stages, self.y, LEAST)

    def logits_at(self, network: Network) -> Tensor:
        """What a network says of these samples."""
        with evaluating(network):
            parts = [predict(network, t, torch.arange(len(t))) for t in self.tasks]
        return torch.cat(parts)

    def much_better(self, one: Network, other: Network) -> bool:
        """Whether `one` clearly gives the labels more likely calibrated probabilities."""
        return ahead(self.logits_at(one), self.logits_at(other), self.y, self.ordinary) > SURE

    @property
    def alike(self) -> Tensor:
        """Weights under which groups count alike, those that surely break a pattern more."""
        return even(self.groups, 1.0, self._sure)

    @property
    def jury(self) -> Jury:
        given = (self.y, self.groups, self.ordinary, self._sure)
        return Jury(*(values[self.rows] for values in given))

    @property
    def _sure(self) -> Tensor:
        return torch.ones(len(self.y)) if self.stages is None else how_sure(self.stages)
