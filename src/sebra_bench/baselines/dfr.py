"""Deep feature reweighting: plain training, then the last layer again on balanced held-out samples.

Follows Kirichenko, Izmailov and Wilson, "Last Layer Re-Training is Sufficient for Robustness to
Spurious Correlations" (ICLR 2023): standardised features of held-out samples, logistic regression
with an l1 penalty on random group-balanced subsets, the coefficients averaged over ten of them, the
strength chosen by the worst group on halves of the held-out set. It departs in two things: one
multinomial regression with free intercepts for any number of classes, and features standardised
with the held-out samples' own statistics.

Beyond the paper: `on = "ranking"` needs no labels of groups. The least spurious `share` of every
class is left out of plain training and takes the place of the held-out set, balanced by class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.grouping import needed, within_class
from sebra.debiasing.last_layer import embedded, set_last_layer
from sebra.debiasing.logistic import logistic_regression
from sebra.debiasing.method import Help, Method, TrainConfig, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check

SHARE = 0.2  # of every class that is held out where a ranking takes the place of groups
RETRAINS = 10  # balanced subsets whose last layers are averaged, as in the paper
STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)  # the paper's grid of inverse penalties


@dataclass(frozen=True)
class DfrConfig(TrainConfig):
    """What the last layer is retrained on."""

    on: str = setting(
        "groups",
        "a held-out set with true groups, or (`ranking`) the least spurious fifth of every class, "
        "which needs no labels",
    )
    c: float = setting(
        0.0, "smaller holds the last layer's weights down; 0 chooses by the paper's grid"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks = {
            "on": self.on in ("groups", "ranking"),
            "c": self.c >= 0,
        }
        check(self, checks)


class Dfr(Method[DfrConfig]):
    """Plain training, then a last layer from balanced logistic regressions."""

    name = "dfr"
    config_class = DfrConfig

    def __init__(self, config: DfrConfig) -> None:
        super().__init__(config)
        held = {"heldout", "heldout_groups"}
        self.needs = frozenset({"ranking"} if config.on == "ranking" else held)

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        cfg = self.config
        plain, held, groups = self.split(task, help)
        network = _train_plain(plain, cfg, help, session)
        generator = task.generator(offset=29)
        x, mean, std = embedded(network, held)
        y = held.targets.cpu()
        c = cfg.c or choose_strength(x, y, groups, task.classes, generator)
        weight, bias = averaged(x, y, groups, task.classes, c, generator)
        set_last_layer(network, weight, bias, mean, std)
        loss = float(F.cross_entropy(F.linear(x, weight, bias), y))
        help.selector.settle(cfg.epochs, network, loss)
        session.note(f"dfr: last layer from {len(y)} held-out samples, inverse penalty {c:g}")
        return network

    def split(self, task: Task, help: Help) -> tuple[Task, Task, Tensor]:
        """The samples for plain training, the held-out ones, and the groups of the latter (CPU)."""
        if self.config.on == "ranking":
            guide = needed(help.guide, "a ranking (--ranking)", self.name)
            held = least_spurious(guide.rank, task.targets, SHARE)
            rest = ~held
            return task.subset(rest), task.subset(held), task.targets[held].cpu()
        what = "held-out samples with attributes (a val split)"
        heldout = needed(help.heldout, what, self.name)
        groups = needed(help.heldout_groups, what, self.name)
        missing = set(range(task.classes)) - set(heldout.targets.tolist())
        if missing:
            raise UsageError(f"--method dfr: no held-out sample of class number {min(missing)}")
        return task, heldout, within_class(groups.cpu(), heldout.targets.cpu())


def _train_plain(task: Task, cfg: DfrConfig, help: Help, session: Session) -> Network:
    task = replace(task, augment=Augment(cfg.flip, cfg.crop))
    network = task.network(hidden=cfg.hidden)

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        return F.cross_entropy(network(task.batch(index, rand)).float(), task.targets[index])

    trainer = make_trainer(task, network, cfg, loss)
    trainer.run(session, help.selector, lambda _: every_sample(task, cfg, trainer.generator))
    help.selector.restore(network)
    return network


def least_spurious(rank: Tensor, targets: Tensor, share: float) -> Tensor:
    """Marks the last `share` of every class by rank: at least one, never all of several.

    Only the order of the ranks counts: a task may hold some of the ranked samples only.
    """
    held = torch.zeros_like(targets, dtype=torch.bool)
    for c in range(int(targets.max()) + 1):
        here = (targets == c).nonzero().squeeze(1)
        wanted = max(1, min(round(len(here) * share), len(here) - 1))
        held[here[rank[here].argsort()[-wanted:]]] = True
    return held


def balanced_subset(groups: Tensor, generator: torch.Generator) -> Tensor:
    """Positions of a random subset in which every group has as many samples as the smallest."""
    smallest = int(torch.bincount(groups).min())
    shuffled = torch.randperm(len(groups), generator=generator)
    members = [shuffled[groups[shuffled] == g][:smallest] for g in range(int(groups.max()) + 1)]
    return torch.cat(members)


def averaged(
    x: Tensor,
    y: Tensor,
    groups: Tensor,
    classes: int,
    c: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Mean weights and intercepts over balanced subsets of the standardised features."""
    fits = []
    for _ in range(RETRAINS):
        index = balanced_subset(groups, generator)
        fits.append(logistic_regression(x[index], y[index], classes, c, l1=True))
    return torch.stack([w for w, _ in fits]).mean(0), torch.stack([b for _, b in fits]).mean(0)


def choose_strength(
    x: Tensor, y: Tensor, groups: Tensor, classes: int, generator: torch.Generator
) -> float:
    """The inverse penalty whose worst group is best on the other half of the held-out set."""
    one, other = _halves(groups, generator)
    one = one[balanced_subset(groups[one], generator)]
    best, chosen = -1.0, STRENGTHS[0]
    for c in STRENGTHS:
        weight, bias = logistic_regression(x[one], y[one], classes, c, l1=True)
        right = (F.linear(x[other], weight, bias).argmax(1) == y[other]).double()
        worst = min(float(right[groups[other] == g].mean()) for g in set(groups.tolist()))
        if worst > best:
            best, chosen = worst, c
    return chosen


def _halves(groups: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two random halves, each with every group; a group of one is in both."""
    shuffled = torch.randperm(len(groups), generator=generator)
    one, other = [], []
    for g in range(int(groups.max()) + 1):
        here = shuffled[groups[shuffled] == g]
        middle = len(here) // 2
        one.append(here[: max(1, middle)])
        other.append(here[middle:])
    return torch.cat(one), torch.cat(other)
