"""DebiAN: a discoverer looks for groups the classifier treats unequally, the classifier mends it.

Follows Li, Hoogs and Xu, "Discover and Mitigate Unknown Biases with Debiasing Alternate Networks"
(ECCV 2022): the two take turns in every step, each on a batch of its own; the network whose turn it
is not is fixed and in evaluation mode. The discoverer has one output per class, the probability
that a sample of that class belongs to the first of two groups. It departs in one thing: the loss is
averaged over the classes of a batch rather than summed, so that one learning rate suits any number
of classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import Help, Method, TrainConfig, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import TrainStep, make_optimizer
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.losses.violation import conflict_weights, discovery_loss


@dataclass(frozen=True)
class DebianConfig(TrainConfig):
    """The discoverer's objective."""

    balance: float = setting(
        1.0, "larger keeps the two discovered groups of a class more equal in size"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"balance": self.balance >= 0})


class Turns(TrainStep):
    """The classifier steps on the first half of the indices, then the discoverer on the second."""

    def __init__(self, classifier: TrainStep, discoverer: TrainStep) -> None:
        super().__init__(
            classifier.network,
            classifier.optimizers,
            classifier.loss,
            classifier.device,
            classifier.randoms,
            graph=False,
            task=classifier.task,
        )
        self.classifier = classifier
        self.discoverer = discoverer

    def __call__(self, index: Tensor, rand: Tensor, content: Tensor | None = None) -> Tensor:
        half = len(index) // 2
        parts = (None, None) if content is None else (content[:half], content[half:])
        out = self.classifier(index[:half], rand[:half], parts[0])
        self.discoverer(index[half:], rand[half:], parts[1])
        return out


class Debian(Method[DebianConfig]):
    """Alternating discoverer and classifier; the classifier is the result."""

    name = "debian"
    config_class = DebianConfig

    def __init__(self, config: DebianConfig) -> None:
        super().__init__(config)
        self.discoverer: Network | None = None

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        """Trains both. Afterwards `discoverer` is the other network."""
        cfg = self.config
        task = replace(task, augment=Augment(cfg.flip, cfg.crop))
        network = task.network(hidden=cfg.hidden)
        self.discoverer = discoverer = discoverer_network(task, cfg.hidden)

        def mend(index: Tensor, rand: Tensor) -> Tensor:
            discoverer.eval()
            network.train()
            x, y = task.batch(index, rand), task.targets[index]
            logits = network(x).float()
            with torch.no_grad():
                assigned = _own(discoverer(x).float().sigmoid(), y)
                weights = conflict_weights(_own(logits.softmax(1), y), assigned, y, task.classes)
            return (weights * F.cross_entropy(logits, y, reduction="none")).mean()

        def discover(index: Tensor, rand: Tensor) -> Tensor:
            network.eval()
            discoverer.train()
            x, y = task.batch(index, rand), task.targets[index]
            with torch.no_grad():
                confidence = _own(network(x).float().softmax(1), y)
            assigned = _own(discoverer(x).float().sigmoid(), y)
            return discovery_loss(confidence, assigned, y, task.classes, cfg.balance)

        finder = make_optimizer(discoverer, cfg.optimizer, cfg.lr, cfg.weight_decay, cfg.momentum)
        extra = {"discoverer": discoverer, "discoverer_optimizer": finder}
        trainer = make_trainer(task, network, cfg, mend, extra=extra)
        other = TrainStep(discoverer, finder, discover, task.device, task.randoms, task=task)
        trainer.step = Turns(trainer.step, other)

        def order(_: int) -> Tensor:
            first = every_sample(task, cfg, trainer.generator)
            return torch.cat([first, every_sample(task, cfg, trainer.generator)], 1)

        trainer.run(session, help.selector, order)
        help.selector.restore(network)
        return network


def discoverer_network(task: Task, hidden: int = 0) -> Network:
    """A network for the task whose last layer starts from random numbers.

    From zeros both groups would be the same, and a violation of exactly zero has no gradient.
    """
    network = task.network(offset=1, hidden=hidden)
    bound = network.width**-0.5
    generator = task.generator(offset=1)
    with torch.no_grad():
        for parameter in network.head.parameters():
            start = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
            parameter.copy_(start)
    return network


def _own(values: Tensor, targets: Tensor) -> Tensor:
    """Of n x classes, each sample's value for its own class."""
    return values.gather(1, targets[:, None]).squeeze(1)
