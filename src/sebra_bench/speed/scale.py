"""Growth with the number of samples, very large features, and streaming from the map."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.engine import networks
from sebra.engine.features import moments
from sebra.engine.networks import LINEAR, Network, NetworkSpec
from sebra.engine.session import Session
from sebra.engine.step import TrainStep, drawn, make_optimizer, train_epoch
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.loading.inputs import Inputs
from sebra.ranking.formulas import weighted_loss
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Blind
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker
from sebra.runs.config import settle
from sebra.samples.table import FeatureArray, ImageArray
from sebra_bench.speed.rates import Bench, Line
from sebra_bench.speed.tools import (
    busy_share,
    peak_memory_mib,
    reset_memory,
    seconds_of,
    wait,
)

Array = npt.NDArray[Any]
_WIDTH, _CLASSES = 64, 10
_BLOCK = 65_536


def growth(sizes: list[int], device: torch.device) -> list[tuple[int, float]]:
    """Seconds of a finished ranking of synthetic features, by number of samples."""
    found = []
    for n in sizes:
        values, labels = synthetic_features(n, _WIDTH, _CLASSES, device, np.float32)
        rank_features(values[:1000], labels[:1000], _CLASSES, device)  # start-up does not count
        found.append((n, rank_features(values, labels, _CLASSES, device)[0]))
    return found


def large_line(n: int, width: int, classes: int, device: torch.device) -> Line:
    """A finished ranking of fp16 features from host memory, the copy to the device included."""
    values, labels = synthetic_features(n, width, classes, device, np.float16)
    reset_memory(device)
    seconds, rounds = rank_features(values, labels, classes, device)
    line = Line(f"rank {n:,} x {width:,}, {classes:,} classes", "s", seconds)
    line.memory_mib = peak_memory_mib(device)
    line.extra["rounds"] = rounds
    return line


def synthetic_features(
    n: int, width: int, classes: int, device: torch.device, dtype: Any
) -> tuple[Array, Array]:
    """Noise with a weak direction per class and a strong one that nine samples in ten follow."""
    generator = torch.Generator(device=device).manual_seed(0)
    real = torch.randn(classes, width, generator=generator, device=device)
    cue = torch.randn(classes, width, generator=generator, device=device)
    labels = torch.randint(classes, (n,), generator=generator, device=device)
    other = torch.randint(classes, (n,), generator=generator, device=device)
    follows = torch.rand(n, generator=generator, device=device) < 0.9
    shown = torch.where(follows, labels, other)
    out = np.empty((n, width), dtype=dtype)
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        noise = torch.randn(stop - start, width, generator=generator, device=device)
        x = noise + 0.5 * real[labels[start:stop]] + cue[shown[start:stop]]
        out[start:stop] = x.cpu().numpy()
    return out, labels.cpu().numpy()


def rank_features(
    values: Array, labels: Array, classes: int, device: torch.device
) -> tuple[float, int]:
    """Seconds and rounds of a finished ranking, everything from the arrays on included."""
    config: SebraConfig = settle(SebraConfig, "rank", "sebra", "features").config
    wait(device)
    start = time.perf_counter()
    inputs = Inputs(FeatureArray(values, np.arange(len(values), dtype=np.int64)), device)
    spec = NetworkSpec(LINEAR, (values.shape[1],), classes)
    mean, std = moments(inputs)

    def build(seed: int, hidden: int) -> Network:
        network = networks.build(spec, seed).to(device)
        network.standardise(mean, std)
        return network

    rows = torch.arange(len(values), device=device)
    targets = torch.from_numpy(labels).to(device)
    task = Task(inputs, rows, targets, classes, build, device, seed=0)
    result = SelfGuidedRanker(config).rank(task, Session(), Blind())
    ranks_within_classes(result.bucket, result.score, labels)
    return time.perf_counter() - start, int(result.details["rounds"])


def stream_lines(b: Bench) -> list[Line]:
    """The rank step and the selection with images that stay in host memory."""
    device, s = b.task.device, b.settings
    content = ImageArray(np.ascontiguousarray(b.pixels), np.arange(len(b.pixels), dtype=np.int64))
    inputs = Inputs(content, device, stream=True)
    task = replace(b.task, inputs=inputs, augment=Augment(flip=True))
    network = task.network().train()
    optimizer = make_optimizer(network, s.optimizer, s.lr, s.weight_decay, s.momentum)

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        logits = network(task.batch(index, rand))
        return weighted_loss(logits, task.targets[index], s.beta)

    step = TrainStep(network, optimizer, loss, device, randoms=task.randoms, task=task)
    order = drawn(torch.arange(len(task)), len(task), s.batch, task.generator())

    def epoch() -> None:
        train_epoch(step, order, task.generator())

    reset_memory(device)
    seconds = seconds_of(epoch, device)
    line = Line("train, streamed from the map", "images/s", order.numel() / seconds)
    line.memory_mib = peak_memory_mib(device)
    line.busy = busy_share(epoch, seconds, device)
    line.of_peak = b.of_peak(line.ours, train=True)
    return [line, _select_streamed(b, network, task)]


def _select_streamed(b: Bench, network: Network, task: Task) -> Line:
    from sebra.engine.step import label_probability

    index = torch.arange(len(task), device=task.device)

    def everyone() -> None:
        label_probability(network, task, index)

    seconds = seconds_of(everyone, task.device)
    line = Line("select, streamed from the map", "images/s", len(task) / seconds)
    line.busy = busy_share(everyone, seconds, task.device)
    line.of_peak = b.of_peak(line.ours, train=False)
    return line
