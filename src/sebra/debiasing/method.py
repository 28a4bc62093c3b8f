"""What every debiasing method is: a class with a configuration and one `fit`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from sebra.debiasing.last_layer import set_probe, set_random
from sebra.debiasing.selection import Selector
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import TrainStep, make_optimizer, set_lr, shuffled, train_epoch
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.settings import Modes, StepConfig, setting
from sebra.values import check


@dataclass(frozen=True)
class TrainConfig(StepConfig):
    """How a network is trained; every method's configuration begins with these fields."""

    MODES: ClassVar[Modes] = {
        "features": {
            "optimizer": "adam",
            "lr": 1e-3,
            "weight_decay": 1e-4,
            "schedule": "constant",
            "hidden": 256,
        },
        "scratch": {
            "optimizer": "adam",
            "lr": 1e-3,
            "weight_decay": 1e-4,
            "batch": 64,
            "schedule": "constant",
            "crop": 1.0,
        },
    }

    epochs: int = setting(20, "more trains longer; the best epoch on validation is kept")
    optimizer: str = "adamw"
    lr: float = 3e-4
    weight_decay: float = 0.05
    crop: float = 0.3
    schedule: str = setting(
        "cosine", "`cosine` lets the rate fall to zero over the epochs, `constant` keeps it"
    )
    start: str = setting(
        "zero",
        "`probe` begins with a last layer that reads the untrained network best, so that fewer "
        "runs stay near chance; `random` as the published code does",
    )
    hidden: int = setting(
        0, "wider can bend more between frozen features and the last layer; 0 is a linear head"
    )

    def __post_init__(self) -> None:
        check(self, {"batch": self.batch >= 2})

    @property
    def weighs_noise(self) -> bool:
        """Whether a ranking without estimates of wrong labels must get them first."""
        return False

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        if self.schedule == "constant":
            return self.lr
        half = 0.5 * (1 + torch.cos(torch.tensor(torch.pi * epoch / self.epochs)).item())
        return self.lr * max(half, 1e-3)


Config = TypeVar("Config", bound=TrainConfig)
T = TypeVar("T")


@dataclass(frozen=True)
class Guide:
    """An earlier ranking of the task's samples, as tensors on the device.

    rank: 0 = most spurious of its class. bucket: smaller = more spurious. stages: n x k alignment
    with each discovered bias (1 follows it, 0 breaks it). p: the probability of the label when the
    sample was ranked. noise: the chance that it is wrong. None where they are not known.
    """

    rank: Tensor
    bucket: Tensor
    spuriosity: Tensor
    stages: Tensor | None = None
    p: Tensor | None = None
    noise: Tensor | None = None


@dataclass(frozen=True)
class Pool:
    """Labelled samples that no network trains on: they choose between models.

    stages: which discovered patterns they follow (n x k, above one half), where that is known.
    """

    task: Task
    stages: Tensor | None = None


@dataclass(frozen=True)
class Help:
    """What a method may use beyond the task; what is absent is None.

    selector: validates the network after each epoch and remembers the best one. pool: samples that
    choose between models. drawn: held-out training samples, where the pool is drawn otherwise and
    cannot say what a model costs.
    guide: a ranking. groups: the true group of every training sample (supervised methods only).
    heldout, heldout_groups: held-out samples for last-layer retraining, with their true groups.
    """

    selector: Selector
    guide: Guide | None = None
    groups: Tensor | None = None
    heldout: Task | None = None
    heldout_groups: Tensor | None = None
    pool: Pool | None = None
    drawn: Pool | None = None


def needed(value: T | None, what: str, method: str) -> T:
    """`value`, or one clear line where a method lacks what it needs."""
    if value is None:
        raise UsageError(f"--method {method}: needs {what}, and there is none")
    return value


class Method(ABC, Generic[Config]):
    """Trains a network on a task.

    needs: what it cannot do without, of "ranking", "groups", "heldout" and "heldout_groups".
    ranker: who ranks for it where no ranking is given. Both can depend on the settings.
    in_processes: whether several processes can train one model together.
    sees_patches: whether frozen features of pictures come with those of their parts; only for
    methods whose network over features is a linear layer. counts_costs: whether it must know what
    a model costs among samples that are drawn like the training set.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[TrainConfig]]
    needs: frozenset[str] = frozenset()
    ranker: str = "sebra"
    in_processes: ClassVar[bool] = False
    sees_patches: ClassVar[bool] = False
    counts_costs: ClassVar[bool] = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def holds_out(self, over_features: bool) -> bool:
        """Whether some training samples must be kept to choose an epoch or a model by."""
        return True

    @abstractmethod
    def fit(self, task: Task, help: Help, session: Session) -> Network: ...


@dataclass
class Trainer:
    """The one loop all methods train with: an order, a loss, an epoch, a look at validation."""

    network: Network
    optimizer: torch.optim.Optimizer
    step: TrainStep
    generator: torch.Generator
    config: TrainConfig
    extra: dict[str, Any] = field(default_factory=dict)  # further state; its optimisers take part

    def run(
        self,
        session: Session,
        selector: Selector | None,
        order: Callable[[int], Tensor],
        phase: str = "train",
        after_epoch: Callable[[int], None] | None = None,
    ) -> None:
        """Trains for the configured epochs; `order(epoch)` gives steps x batch sample indices."""
        state: dict[str, Any] = {
            "network": self.network,
            "optimizer": self.optimizer,
            "generator": self.generator,
            **self.extra,
        }
        if selector is not None:
            state["selector"] = selector
        for epoch in session.phase(phase, self.config.epochs, state):
            self._set_rate(self.config.rate(epoch))
            self.network.train()
            loss = train_epoch(self.step, order(epoch), self.generator)
            if after_epoch is not None:
                after_epoch(epoch)
            if selector is not None:
                selector.epoch(epoch, self.network, loss)

    def _set_rate(self, rate: float) -> None:
        """Of its own optimiser and of those of further networks."""
        others = [o for o in self.extra.values() if isinstance(o, torch.optim.Optimizer)]
        for optimizer in (self.optimizer, *others):
            set_lr(optimizer, rate)


def make_trainer(
    task: Task,
    network: Network,
    config: TrainConfig,
    loss: Callable[[Tensor, Tensor], Tensor],
    offset: int = 0,
    randoms: int | None = None,
    extra: dict[str, Any] | None = None,
    graph: bool = True,
) -> Trainer:
    """A trainer for `loss(index, rand)`; `randoms` defaults to what augmentation needs."""
    if config.start != "zero":
        {"probe": set_probe, "random": set_random}[config.start](network, task)
    optimizer = make_optimizer(
        network, config.optimizer, config.lr, config.weight_decay, config.momentum
    )
    wanted = task.randoms if randoms is None else randoms
    step = TrainStep(network, optimizer, loss, task.device, wanted, graph, task)
    generator = task.generator(offset + 17)
    return Trainer(network, optimizer, step, generator, config, extra or {})


def every_sample(task: Task, config: TrainConfig, generator: torch.Generator) -> Tensor:
    """Every sample of the task once, in random order."""
    return shuffled(torch.arange(len(task)), min(config.batch, len(task)), generator)
