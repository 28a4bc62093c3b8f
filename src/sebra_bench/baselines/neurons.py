"""Spuriosity Rankings (Moayeri et al. 2023): by the activation of neurons a person calls spurious.

A network is trained plainly; of its penultimate layer the neurons that matter most to a class are
put before a person; samples of the class are ordered by how strongly they excite the marked ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import (
    TrainStep,
    label_probability,
    make_optimizer,
    shuffled,
    train_epoch,
)
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.loading.augment import Augment
from sebra.ranking.formulas import weighted_loss
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Array, Monitor, Ranker, RankResult
from sebra.ranking.sebra import batch_for
from sebra.samples.table import Samples
from sebra.settings import Modes, StepConfig, setting
from sebra.values import check
from sebra_bench.baselines.activations import Profile
from sebra_bench.baselines.neuron_marks import Marks, Neuron, read_marked, write_template

AUTO = "auto"
BUCKETS = 10  # equal parts of each class
EXAMPLES = 8  # samples listed per neuron
_KNOWN = 0.5  # p_y above which the history counts a sample as learned
_OTHER_NETWORK = 0.25  # relative change of an importance that means: not the marked network


@dataclass(frozen=True)
class NeuronsConfig(StepConfig):
    """How the network is trained and how many neurons count."""

    MODES: ClassVar[Modes] = {
        "features": {"epochs": 15, "lr": 0.15, "weight_decay": 0.0, "batch": 0},
        "scratch": {
            "epochs": 20,
            "optimizer": "adam",
            "lr": 3e-4,
            "weight_decay": 1e-4,
            "batch": 64,
        },
    }

    epochs: int = setting(10, "more trains the network longer before its neurons are read")
    momentum: float = 0.1
    weight_decay: float = 1e-3
    top: int = setting(5, "more neurons per class count as spurious, or are listed to be marked")

    def __post_init__(self) -> None:
        check(self)


class NeuronsRanker(Ranker[NeuronsConfig]):
    """Ranks by the marked neurons; without `marks` the `top` most important of each class count.

    After `rank`, `neurons` lists class by class what a person may mark.
    """

    config_class = NeuronsConfig
    sees_patches = False  # its neurons are those of the last layer but one
    takes_marks = True

    def __init__(self, config: NeuronsConfig) -> None:
        super().__init__(config)
        self.marks: Marks | None = None
        self.neurons: tuple[tuple[Neuron, ...], ...] = ()
        self._asks = True

    def take_marks(self, marks: str | None, train: Samples) -> None:
        self._asks = marks is None
        if marks not in (None, AUTO):
            self.marks = read_marked(str(marks), train)

    def leave(self, folder: Path, train: Samples, session: Session) -> None:
        if self._asks:
            write_template(folder, self.neurons, train, session)

    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult:
        cfg = self.config
        network = task.network()
        self._check_marks(network)
        train(cfg, replace(task, augment=Augment(cfg.flip, cfg.crop)), network, session, monitor)
        profile = Profile(network, task, self.marks.samples if self.marks else ())
        important = [profile.top(c, cfg.top) for c in range(task.classes)]
        marked = [self._marked(c, important[c], profile) for c in range(task.classes)]
        self._compare(profile, session)
        listed = [tuple(dict.fromkeys([*a, *b])) for a, b in zip(important, marked, strict=True)]
        columns = profile.columns(network, task, listed)
        self.neurons = tuple(
            self._neurons(c, listed[c], marked[c], profile, columns, task)
            for c in range(task.classes)
        )
        return self._result(listed, marked, columns, task, session)

    def _check_marks(self, network: Network) -> None:
        for c, neurons in (self.marks.neurons if self.marks else {}).items():
            for neuron in neurons:
                if not 0 <= neuron < network.width:
                    assert self.marks is not None
                    raise UsageError(
                        f"--neurons: {self.marks.source} names neuron {neuron} for class number "
                        f"{c}, the network has 0 to {network.width - 1}; was it made with another "
                        "backbone?"
                    )

    def _marked(self, c: int, important: list[int], profile: Profile) -> list[int]:
        if self.marks is None:
            return important
        if self.marks.samples:
            return profile.excited(c, self.config.top)
        return list(self.marks.neurons.get(c, ()))

    def _compare(self, profile: Profile, session: Session) -> None:
        """Numbers of neurons mean something in one network only."""
        for (c, neuron), before in (self.marks.importance if self.marks else {}).items():
            now = float(profile.importance[c, neuron])
            if abs(now - before) > _OTHER_NETWORK * max(abs(now), abs(before)):
                session.note(
                    f"neurons: neuron {neuron} has importance {now:.3g}, the marks say "
                    f"{before:.3g}: they seem to belong to another network; use the seed and the "
                    "options of the run that wrote them"
                )
                return

    def _neurons(
        self,
        c: int,
        listed: tuple[int, ...],
        marked: list[int],
        profile: Profile,
        columns: Tensor,
        task: Task,
    ) -> tuple[Neuron, ...]:
        members = (task.targets == c).nonzero().squeeze(1)
        out = []
        for k, neuron in enumerate(listed):
            order = columns[members, k].argsort(descending=True)[:EXAMPLES]
            examples = tuple(int(i) for i in members[order].cpu())
            importance = float(profile.importance[c, neuron])
            out.append(Neuron(neuron, importance, neuron in marked, examples))
        return tuple(out)

    def _result(
        self,
        listed: list[tuple[int, ...]],
        marked: list[list[int]],
        columns: Tensor,
        task: Task,
        session: Session,
    ) -> RankResult:
        labels = task.targets.cpu().numpy()
        score = torch.zeros(len(task), device=task.device)
        for c, neurons in enumerate(marked):
            if neurons:
                where = [listed[c].index(neuron) for neuron in neurons]
                members = (task.targets == c).nonzero().squeeze(1)
                score[members] = columns[members][:, where].mean(1)
        unmarked = [c for c, neurons in enumerate(marked) if not neurons]
        if unmarked:
            session.note(
                f"neurons: none is marked spurious for {len(unmarked)} of {task.classes} classes; "
                "their samples stay in random order in one bucket"
            )
        values = score.cpu().numpy()
        bucket = _quantiles(values, labels, BUCKETS)
        bucket[np.isin(labels, unmarked)] = 0
        details: dict[str, Any] = {"neurons_marked": sum(map(len, marked))}
        return RankResult(bucket, values, details=details)


def train(
    cfg: NeuronsConfig, task: Task, network: Network, session: Session, monitor: Monitor
) -> None:
    """Plain training of `network` in place."""
    network.train()
    optimizer = make_optimizer(network, cfg.optimizer, cfg.lr, cfg.weight_decay, cfg.momentum)
    generator = task.generator()
    everyone = torch.arange(len(task))
    batch = min(cfg.batch or batch_for(len(task)), len(task))

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        logits = network(task.batch(index, rand))
        return weighted_loss(logits, task.targets[index], 1.0, use_u=False)

    step = TrainStep(network, optimizer, loss, task.device, randoms=task.randoms)
    state = {
        "network": network,
        "optimizer": optimizer,
        "generator": generator,
        "monitor": monitor,
    }
    for epoch in session.phase("rank", cfg.epochs, state):
        mean = train_epoch(step, shuffled(everyone, batch, generator), generator)
        known = label_probability(network, task, everyone) > _KNOWN
        monitor.round(epoch, network, mean, known)


def _quantiles(score: Array, labels: Array, buckets: int) -> Array:
    """Equal parts of each class by falling score; bucket 0 has the highest."""
    rank = ranks_within_classes(np.zeros(len(labels), dtype=np.int64), score, labels)
    size = np.bincount(labels)[labels]
    return (rank * buckets // size).astype(np.int64)
