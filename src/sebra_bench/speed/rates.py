"""Throughput of training, selecting and debiasing beside the eager and the reference loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sebra.debiasing.contrastive import ContrastiveConfig
from sebra.debiasing.method import Guide, Help
from sebra.debiasing.sebra import Sebra
from sebra.debiasing.selection import Selector
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import (
    TrainStep,
    drawn,
    label_probability,
    make_optimizer,
    train_epoch,
)
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.ranking.formulas import weighted_loss
from sebra_bench.speed.tools import (
    busy_share,
    flops_per_sample,
    peak_memory_mib,
    reset_memory,
    seconds_of,
    wait,
)

_BUCKETS = 8


@dataclass
class Line:
    """One line of the table. Rates are per second; `seconds` lines are wall-clock times."""

    name: str
    unit: str  # "images/s" (more is better) or "s" (less is better)
    ours: float
    eager: float | None = None
    reference: float | None = None
    busy: float | None = None
    of_peak: float | None = None
    memory_mib: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def ratio(self, other: float | None) -> float | None:
        """How many times as fast as `other`."""
        if other is None:
            return None
        return other / self.ours if self.unit == "s" else self.ours / other


@dataclass
class Bench:
    """What every section works with."""

    task: Task  # training images, resident on the device
    pixels: Any  # the same images: n x h x w x 3, uint8
    labels: Any
    reference: Any  # the module of the reference loops
    settings: Any  # its Settings, with the ranking's values
    peak: float  # operations per second
    workers: int

    def plain_network(self) -> nn.Module:
        """Body and head without normalisation: what the reference loops train."""
        network = self.task.network()
        return nn.Sequential(network.body, network.head)

    def pictures(self) -> list[Any]:
        made: list[Any] = self.reference.pictures(self.pixels)
        return made

    def steps(self) -> int:
        return max(1, -(-len(self.task) // int(self.settings.batch)))

    def of_peak(self, images_per_second: float, train: bool) -> float:
        x = self.task.inputs.batch(self.task.rows[:8])
        return images_per_second * flops_per_sample(self.task.network(), x, train) / self.peak


def train_lines(b: Bench) -> list[Line]:
    """The rank step and the ERM step, one epoch each."""

    def plain(logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), y)

    def ranked(logits: Tensor, y: Tensor) -> Tensor:
        return weighted_loss(logits, y, b.settings.beta)

    kinds = {"train, rank step": (ranked, True), "train, ERM": (plain, False)}
    return [_train_line(b, name, loss, ref) for name, (loss, ref) in kinds.items()]


def _train_line(
    b: Bench, name: str, loss_of: Callable[[Tensor, Tensor], Tensor], with_reference: bool
) -> Line:
    device, s = b.task.device, b.settings
    task = replace(b.task, augment=Augment(flip=True))
    network = task.network().train()
    optimizer = make_optimizer(network, s.optimizer, s.lr, s.weight_decay, s.momentum)

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        return loss_of(network(task.batch(index, rand)), task.targets[index])

    step = TrainStep(network, optimizer, loss, device, randoms=task.randoms)
    generator = task.generator()
    order = drawn(torch.arange(len(task)), len(task), s.batch, generator)
    images = order.numel()

    def epoch() -> None:
        train_epoch(step, order, generator)

    reset_memory(device)
    seconds = seconds_of(epoch, device)
    memory = peak_memory_mib(device)
    line = Line(name, "images/s", images / seconds, memory_mib=memory)
    line.busy = busy_share(epoch, seconds, device)
    line.of_peak = b.of_peak(line.ours, train=True)
    line.eager = _eager_rate(b, lambda eager: eager.train(b.steps(), loss_of))
    if with_reference:
        ranker = b.reference.Ranker(b.plain_network(), b.pictures(), b.labels, s, device)
        line.reference = len(task) / seconds_of(ranker.train, device, repeats=1)
    return line


def select_lines(b: Bench) -> list[Line]:
    """p_y of every training image."""
    device, task = b.task.device, b.task
    network = task.network()
    index = torch.arange(len(task), device=device)

    def everyone() -> None:
        label_probability(network, task, index)

    reset_memory(device)
    seconds = seconds_of(everyone, device, repeats=5)
    memory = peak_memory_mib(device)
    line = Line("select", "images/s", len(task) / seconds, memory_mib=memory)
    line.busy = busy_share(everyone, seconds, device)
    line.of_peak = b.of_peak(line.ours, train=False)
    line.eager = _eager_rate(b, lambda eager: eager.select(b.steps()))
    ranker = b.reference.Ranker(b.plain_network(), b.pictures(), b.labels, b.settings, device)
    line.reference = len(task) / seconds_of(ranker.select, device, repeats=1)
    return [line]


def _eager_rate(b: Bench, work: Callable[[Any], Any]) -> float:
    device = b.task.device
    pixels = torch.from_numpy(np.ascontiguousarray(b.pixels)).to(device)
    eager = b.reference.Eager(b.plain_network(), pixels, b.task.targets, b.settings, device)
    images = b.steps() * int(b.settings.batch)
    return images / seconds_of(lambda: work(eager), device)


def debias_lines(b: Bench, config: ContrastiveConfig) -> list[Line]:
    """One epoch of contrastive debiasing, without validation, on both sides."""
    device, task = b.task.device, b.task
    bucket = np.random.default_rng(0).integers(_BUCKETS, size=len(task))
    reset_memory(device)
    spent = _epoch_seconds(task, replace(config, epochs=4), torch.from_numpy(bucket).to(device))
    line = Line("debias epoch", "s", spent, memory_mib=peak_memory_mib(device))
    line.extra["images_per_second"] = len(task) / spent
    s = replace(
        b.settings,
        batch=config.batch,
        optimizer=config.optimizer,
        lr=config.lr,
        weight_decay=config.weight_decay,
        gamma=config.gamma,
        tau=config.tau,
    )
    network: Network = task.network()
    debiaser = b.reference.Debiaser(
        network.body, network.head, b.pictures(), b.labels, bucket, s, device
    )
    line.reference = seconds_of(debiaser.epoch, device, repeats=1)
    return [line]


def _epoch_seconds(task: Task, config: ContrastiveConfig, bucket: Tensor) -> float:
    """Seconds of an epoch as the method runs it; the first, which captures, does not count."""
    ends: list[float] = []

    def note_time(network: nn.Module) -> tuple[float, dict[str, float]]:
        wait(task.device)
        ends.append(time.perf_counter())
        return 0.0, {}

    spuriosity = torch.zeros(len(task), device=task.device)
    guide = Guide(rank=bucket, bucket=bucket, spuriosity=spuriosity)
    Sebra(config).fit(task, Help(Selector(note_time, "none"), guide), Session())
    return float(np.median(np.diff(ends)))
