"""Small tasks over features for the tests of rankers and of the engine."""

from __future__ import annotations

import numpy as np
import torch

from sebra.engine.features import moments
from sebra.engine.networks import LINEAR, Network, NetworkSpec, build
from sebra.engine.task import Task
from sebra.loading.inputs import Inputs
from sebra.samples.table import FeatureArray


def task_of(x: np.ndarray, y: np.ndarray, seed: int = 0) -> Task:
    """A linear head over standardised features."""
    cpu = torch.device("cpu")
    inputs = Inputs(FeatureArray(x, np.arange(len(x))), cpu)
    classes = int(y.max()) + 1
    mean, std = moments(inputs)

    def network(seed: int, hidden: int) -> Network:
        made = build(NetworkSpec(LINEAR, (x.shape[1],), classes, hidden=hidden), seed)
        made.standardise(mean, std)
        return made

    targets = torch.from_numpy(y.astype(np.int64))
    return Task(inputs, torch.arange(len(y)), targets, classes, network, cpu, seed)


def noisy(n: int = 60, d: int = 5, classes: int = 3, seed: int = 0) -> Task:
    """Overlapping blobs: samples of every degree of difficulty."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, :classes] += 2.5 * np.eye(classes, dtype=np.float32)[y]
    return task_of(x, y, seed)


def planted(n: int = 400, share: float = 0.1, seed: int = 0) -> tuple[Task, np.ndarray]:
    """Two classes, a loud cue that goes with the label but for `share` of the samples.

    Returns the task and which samples are conflicting; the label itself is quiet.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    conflicting = np.zeros(n, dtype=bool)
    for c in range(2):
        members = rng.permutation(np.flatnonzero(y == c))
        conflicting[members[: int(share * len(members))]] = True
    cue = np.where(conflicting, 1 - y, y)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    x[:, 0] = 6 * (cue - 0.5) + rng.normal(size=n) * 0.5
    x[:, 1] += y - 0.5
    return task_of(x, y, seed), conflicting


def images(n: int = 24, side: int = 12, seed: int = 0) -> Task:
    """Tiny pictures, the class in their colour, for the small network."""
    from sebra.engine.networks import SMALL
    from sebra.samples.table import ImageArray

    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    pixels = rng.integers(0, 160, (n, side, side, 3))
    pixels[np.arange(n), :, :, y] += 90
    cpu = torch.device("cpu")
    inputs = Inputs(ImageArray(pixels.astype(np.uint8), np.arange(n)), cpu)
    spec = NetworkSpec(SMALL, (3, side, side), 2)
    targets = torch.from_numpy(y)
    return Task(
        inputs, torch.arange(n), targets, 2, lambda seed, hidden: build(spec, seed), cpu, seed
    )


def noisy_pictures(n: int = 400, side: int = 12) -> tuple[Task, np.ndarray]:
    """Small pictures with a loud colour that follows the class, and one label in ten wrong."""
    from sebra.engine.networks import SMALL, NetworkSpec, build
    from sebra.loading.inputs import Inputs
    from sebra.samples.table import ImageArray

    rng = np.random.default_rng(0)
    true = np.arange(n) % 2
    cue = np.where(rng.random(n) < 0.85, true, 1 - true)
    pixels = rng.integers(0, 120, (n, side, side, 3))
    pixels[np.arange(n), :, :, cue] += 80
    for i, c in enumerate(true):  # the class: where a patch is
        pixels[i, 8 * c : 8 * c + 4, :4, 2] += 110
    labels = np.where(rng.random(n) < 0.1, 1 - true, true)
    cpu, spec = torch.device("cpu"), NetworkSpec(SMALL, (3, side, side), 2)
    content = ImageArray(pixels.astype(np.uint8), np.arange(n))
    targets = torch.from_numpy(labels)
    network = lambda seed, hidden: build(spec, seed)  # noqa: E731
    return Task(Inputs(content, cpu), torch.arange(n), targets, 2, network, cpu, 0), labels
