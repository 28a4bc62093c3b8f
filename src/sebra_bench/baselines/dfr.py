"""Deep feature reweighting: plain training, then the last layer again on balanced held-out samples.

Follows Kirichenko, Izmailov and Wilson, "Last Layer Re-Training is Sufficient for Robustness to
Spurious Correlations" (ICLR 2023): standardised features of held-out samples, a logistic regression
in which all groups count alike, its strength chosen by the worst group; the network is that of the
last epoch. It departs in three things: samples are weighted where the paper averages over ten
balanced subsets, squared weights are penalised where it takes absolute ones, and the strength comes
from cross-validation where it cuts the held-out set in half. What the three change was not
measured.

Beyond the paper: `on = "patterns"` needs no labels of groups; discovered patterns take their place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.choosing import Jury, even, groups_of
from sebra.debiasing.heads import STRENGTHS, Examples, fitted
from sebra.debiasing.last_layer import embedded, set_head
from sebra.debiasing.method import Help, Method, TrainConfig, needed
from sebra.engine.logistic import logits_of
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.grouping import within_class
from sebra_bench.baselines.held_out import plain

_LEAST = 4  # held-out samples of a class and pattern that make a group of their own


@dataclass(frozen=True)
class DfrConfig(TrainConfig):
    """What the last layer is retrained on."""

    on: str = setting(
        "groups",
        "what the last layer is balanced by: true groups, or (`patterns`) discovered ones, which "
        "needs no labels",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"on": self.on in ("groups", "patterns")})


class Dfr(Method[DfrConfig]):
    """Plain training, then a last layer from a balanced logistic regression."""

    name = "dfr"
    ranker = "peel"
    config_class = DfrConfig

    def __init__(self, config: DfrConfig) -> None:
        super().__init__(config)
        by_groups = frozenset({"heldout", "heldout_groups"})
        self.needs = by_groups if config.on == "groups" else frozenset({"ranking"})

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        held, groups = self._held_out(task, help)
        network = plain(task, self.config, session)
        x, mean, std = embedded(network, held)
        y, weights = held.targets.cpu(), even(groups.cpu(), 1.0)
        data = Examples.of(x, y, task.classes, task.seed)
        jury = Jury(y, groups)
        looks = [jury.figures(jury.right(z)) for z in data.held_out(weights, STRENGTHS)]
        at = max(range(len(looks)), key=lambda i: looks[i].worst + looks[i].balanced)
        head = fitted(x, y, task.classes, weights, STRENGTHS[at])
        set_head(network, head, mean, std)
        loss = float(F.cross_entropy(logits_of(x, head).cpu(), y))
        help.selector.settle(self.config.epochs, network, loss)
        session.note(f"dfr: last layer from {len(y)} held-out samples, strength {STRENGTHS[at]:g}")
        return network

    def _held_out(self, task: Task, help: Help) -> tuple[Task, Tensor]:
        """Held-out samples and the group of each."""
        if self.config.on == "patterns":
            needed(help.guide, "a ranking (--ranking)", self.name)
            pool = needed(help.pool, "held-out samples", self.name)
            if pool.stages is None:
                return pool.task, pool.task.targets
            return pool.task, groups_of(pool.stages, pool.task.targets, _LEAST)
        what = "held-out samples with attributes (a val split)"
        heldout = needed(help.heldout, what, self.name)
        groups = needed(help.heldout_groups, what, self.name)
        missing = set(range(task.classes)) - set(torch.unique(heldout.targets).tolist())
        if missing:
            raise UsageError(f"--method dfr: no held-out sample of class number {min(missing)}")
        return heldout, within_class(groups, heldout.targets)
