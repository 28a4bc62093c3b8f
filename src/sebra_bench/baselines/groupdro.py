"""Group DRO: minimise the loss of the worst group.

Follows Sagawa, Koh, Hashimoto and Liang, "Distributionally Robust Neural Networks for Group Shifts"
(ICLR 2020), Algorithm 1, with the batches of its published runs: every group equally likely.
Without the group adjustment C / sqrt(n_g). The paper's strong regularisation depends on the data
and is not a default here: set `weight_decay`.

Beyond the paper: `over = "buckets"` takes class x rank bucket of a ranking as the groups, which
needs no labels of groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import (
    Help,
    Method,
    TrainConfig,
    make_trainer,
    needed,
)
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import weighted_draws
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.grouping import balanced_weights, bucket_groups, within_class
from sebra_bench.baselines.losses.worst_group import chase_worst, group_losses

_PARTS = 4  # of a class, at most: a bucket with few samples has no steady loss


@dataclass(frozen=True)
class WorstConfig(TrainConfig):
    """How fast the weights of groups move."""

    eta: float = setting(0.01, "larger turns faster to the group that does worst")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"eta": self.eta > 0})


@dataclass(frozen=True)
class GroupDroConfig(WorstConfig):
    """Which groups."""

    over: str = setting(
        "groups", "the true groups, or (`buckets`) class x rank bucket, which needs no labels"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"over": self.over in ("groups", "buckets")})


class GroupDro(Method[GroupDroConfig]):
    """Cross-entropy of the groups, each weighted by how badly it has been doing."""

    name = "groupdro"
    config_class = GroupDroConfig

    def __init__(self, config: GroupDroConfig) -> None:
        super().__init__(config)
        self.needs = frozenset({"groups" if config.over == "groups" else "ranking"})

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        return fit_worst(task, self.groups(task, help), self.config, help, session)

    def groups(self, task: Task, help: Help) -> Tensor:
        """The group of every training sample; a group never spans two classes."""
        if self.config.over == "buckets":
            guide = needed(help.guide, "a ranking (--ranking)", self.name)
            return bucket_groups(guide, task.targets, _PARTS)
        true = needed(help.groups, "the true groups: attributes of the training samples", self.name)
        return within_class(true.to(task.device), task.targets)


def fit_worst(
    task: Task, groups: Tensor, cfg: WorstConfig, help: Help, session: Session
) -> Network:
    """A network trained for the worst of these groups; none of them spans two classes."""
    task = replace(task, augment=Augment(cfg.flip, cfg.crop))
    network = task.network(hidden=cfg.hidden)
    count = int(groups.max()) + 1
    weights = torch.full((count,), 1.0 / count, device=task.device)

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        logits = network(task.batch(index, rand))
        losses = F.cross_entropy(logits.float(), task.targets[index], reduction="none")
        each = group_losses(losses, groups[index], count)
        chase_worst(weights, each.detach(), cfg.eta)
        return (weights * each).sum()

    trainer = make_trainer(task, network, cfg, loss, extra={"group_weights": weights})
    chances = balanced_weights(groups)
    batch = min(cfg.batch, len(task))
    trainer.run(
        session,
        help.selector,
        lambda _: weighted_draws(chances, len(task), batch, trainer.generator),
    )
    help.selector.restore(network)
    return network
