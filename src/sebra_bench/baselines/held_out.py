"""Plain training, then a last layer fitted to samples that it did not see: what several share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.erm import Erm
from sebra.debiasing.heads import fit_head
from sebra.debiasing.method import Help, Method, TrainConfig, needed
from sebra.debiasing.selection import Selector
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.inputs import Inputs
from sebra.settings import setting
from sebra.values import check

SHARE = 0.2  # of each class, held out
State = dict[str, Tensor]
# Methods that begin with the same training share it; it goes with the data set.
_known: WeakKeyDictionary[Inputs, dict[tuple[object, ...], State]] = WeakKeyDictionary()
_MOST_KNOWN = 4


@dataclass(frozen=True)
class HeldOutConfig(TrainConfig):
    """What the last layer is fitted to."""

    on: str = setting(
        "train",
        "what the last layer is fitted to: a fifth of the training samples, which the first "
        "training leaves out, or (`val`) the samples that choose the model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"on": self.on in ("train", "val")})


Config = TypeVar("Config", bound=HeldOutConfig)


class HeldOut(Method[Config], Generic[Config]):
    """Plain training to its last epoch, then `refit` on the held-out samples."""

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        if self.config.on == "val":
            held = needed(help.pool, "samples that choose the model", self.name).task
        else:
            task, held = parted(task)
        network = plain(task, self.config, session)
        self.refit(network, held, session)
        with evaluating(network):
            logits = predict(network, held, torch.arange(len(held)))
        loss = float(F.cross_entropy(logits, held.targets))
        help.selector.settle(self.config.epochs, network, loss)
        return network

    @abstractmethod
    def refit(self, network: Network, held: Task, session: Session) -> None:
        """Fits the network's last layer to samples it was not trained on."""


def parted(task: Task) -> tuple[Task, Task]:
    """Four fifths of every class to train on, and one fifth (at least a sample) held out."""
    generator, held = task.generator(offset=57), []
    targets = task.targets.cpu()
    for c in targets.unique().tolist():  # type: ignore[no-untyped-call]
        members = (targets == c).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        held.append(members[: max(1, int(len(members) * SHARE))])
    out = torch.zeros(len(task), dtype=torch.bool)
    out[torch.cat(held)] = True
    first, second = ((~out).nonzero().flatten(), out.nonzero().flatten())
    return task.subset(first.to(task.device)), task.subset(second.to(task.device))


def plain(task: Task, config: TrainConfig, session: Session) -> Network:
    """Plain training to its last epoch; the same training is not repeated for another method."""
    shared = TrainConfig(**{f.name: getattr(config, f.name) for f in fields(TrainConfig)})
    network = task.network()

    def compute() -> State:
        if task.over_features:
            return _on_cpu(fit_head(task, torch.ones(len(task))))
        blind = Help(Selector(None, "last epoch"))
        return _on_cpu(Erm(shared).fit(task, blind, session))

    network.load_state_dict(session.once("plain", lambda: _shared(task, network, shared, compute)))
    return network


def _shared(task: Task, fresh: Network, config: TrainConfig, compute: Callable[[], State]) -> State:
    begins = float(sum(p.detach().double().sum() for p in fresh.parameters()))
    rows = tuple(task.rows.tolist())
    key = (config, task.seed, fresh.spec, begins, hash(rows), tuple(task.targets.tolist()))
    known = _known.setdefault(task.inputs, {})
    if key not in known:
        while len(known) >= _MOST_KNOWN:
            known.pop(next(iter(known)))
        known[key] = compute()
    return known[key]


def _on_cpu(network: Network) -> State:
    return {k: v.detach().cpu().clone() for k, v in network.state_dict().items()}
