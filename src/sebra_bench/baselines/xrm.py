"""Cross-risk minimisation: twins that learn each other's mistakes show who is hard for a cheat.

Follows Pezeshki, Bouchacourt, Ibrahim, Ballas, Vincent and Lopez-Paz, "Discovering Environments
with XRM" (ICML 2024): each of two networks trains on a random half, classes counting alike; a
label is flipped to what the network that does not train on it says, the more likely the surer it
is. Afterwards the samples whose label the held-out network misses make one environment, the rest
the other, and group DRO minimises the worst of class x environment. It departs in one thing: how
long the twins train is a setting, where the paper takes the run that flips most labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.choosing import even
from sebra.debiasing.method import Help, Method, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.step import make_optimizer
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.groupdro import WorstConfig, fit_worst
from sebra_bench.baselines.grouping import within_class


@dataclass(frozen=True)
class XrmConfig(WorstConfig):
    """The twins; group DRO comes after them."""

    identify_epochs: int = setting(5, "longer lets the twins cheat more before they are asked")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"identify_epochs": self.identify_epochs >= 1})


class Xrm(Method[XrmConfig]):
    """Twin networks, their held-out mistakes, and group DRO over class x mistake."""

    name = "xrm"
    config_class = XrmConfig

    def __init__(self, config: XrmConfig) -> None:
        super().__init__(config)
        self.mistakes = torch.empty(0, dtype=torch.bool)

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        """Trains. Afterwards `mistakes` says which labels the held-out twin missed."""
        found = session.once("twins", lambda: {"mistakes": self._identify(task, session)})
        self.mistakes = found["mistakes"].bool()
        session.note(f"xrm: {int(self.mistakes.sum())} of {len(task)} are held-out mistakes")
        groups = within_class(self.mistakes.long().to(task.device), task.targets)
        return fit_worst(task, groups, self.config, help, session)

    def _identify(self, task: Task, session: Session) -> Tensor:
        cfg = replace(self.config, epochs=self.config.identify_epochs, start="zero")
        task = replace(task, augment=Augment(cfg.flip, cfg.crop))
        one, two = (task.network(offset=k, hidden=cfg.hidden) for k in (1, 2))
        two.train()
        halves = torch.randperm(len(task), generator=task.generator(73)) < len(task) // 2
        first = halves.to(task.device)
        labels = task.targets.clone()
        weights = even(task.targets.cpu(), 1.0).to(task.device)
        weights = weights / weights.mean()

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            x, mine = task.batch(index, rand), first[index][:, None]
            a, b = one(x).float(), two(x).float()
            y = labels[index]
            losses = F.cross_entropy(torch.where(mine, a, b), y, reduction="none")
            with torch.no_grad():
                said = torch.where(mine, b, a)
                flip = rand[:, -1] < flip_chance(said)
                labels.index_copy_(0, index, torch.where(flip, said.argmax(1), y))
            return (weights[index] * losses).mean()

        other = make_optimizer(two, cfg.optimizer, cfg.lr, cfg.weight_decay, cfg.momentum)
        extra = {"twin": two, "twin_optimizer": other, "labels": labels}
        trainer = make_trainer(
            task, one, cfg, loss, offset=1, randoms=task.randoms + 1, extra=extra
        )
        trainer.step.optimizers.append(other)
        trainer.run(session, None, lambda _: every_sample(task, cfg, trainer.generator), "twins")
        told = []
        for network in (one, two):
            with evaluating(network):
                told.append(predict(network, task, torch.arange(len(task))).argmax(1))
        return torch.where(first, told[1], told[0]) != task.targets


def flip_chance(logits: Tensor) -> Tensor:
    """How likely a label becomes what is predicted: 0 of a guess, 1 of certainty."""
    classes = logits.shape[1]
    p = logits.softmax(1).amax(1)
    return (p - 1 / classes) * classes / (classes - 1)
