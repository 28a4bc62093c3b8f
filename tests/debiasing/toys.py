"""Tiny biased tasks with a known answer, and ways to train on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sebra.debiasing.method import Guide, Help, Pool
from sebra.debiasing.selection import Selector
from sebra.engine.networks import LINEAR, SMALL, NetworkSpec, build
from sebra.engine.session import Session
from sebra.engine.step import evaluating, predict
from sebra.engine.task import Task
from sebra.loading.inputs import Inputs
from sebra.samples.table import FeatureArray, ImageArray


@dataclass(frozen=True)
class Toy:
    """A task in which a strong cue goes with the label except in the conflicting samples."""

    train: Task
    held: Task
    conflicting: Tensor
    held_conflicting: Tensor

    def guide(self) -> Guide:
        """A perfect ranking in four buckets: two of aligned, two of conflicting samples."""
        y, n = self.train.targets, len(self.train)
        rank = torch.zeros_like(y)
        bucket = torch.zeros_like(y)
        for c in range(self.train.classes):
            order = torch.argsort(self.conflicting.long() * n + (y != c) * 10 * n, stable=True)
            order = order[: int((y == c).sum())]
            rank[order] = torch.arange(len(order), device=y.device)
            aligned = int((~self.conflicting[order]).sum())
            bucket[order[aligned // 2 : aligned]] = 1
            bucket[order[aligned:]] = 2
            bucket[order[(aligned + len(order)) // 2 :]] = 3
        stages = (~self.conflicting).float()[:, None]
        size = torch.bincount(y)[y]
        p = torch.where(self.conflicting, 0.1, 0.9)
        return Guide(rank, bucket, 1.0 - rank / size, stages, p, torch.zeros(len(y)).to(p))

    def help(self, needs: frozenset[str], selector: Selector | None = None) -> Help:
        """Exactly what `needs` names."""
        return Help(
            selector or Selector(None, "last epoch"),
            guide=self.guide() if "ranking" in needs else None,
            groups=self.conflicting.long() if "groups" in needs else None,
            heldout=self.held if "heldout" in needs else None,
            heldout_groups=self.held_conflicting.long() if "heldout_groups" in needs else None,
            pool=self.pool() if "ranking" in needs else None,
        )

    def pool(self) -> Pool:
        """The held-out samples, with the pattern that each follows."""
        return Pool(self.held, (~self.held_conflicting).float()[:, None])


def features(
    seed: int = 0,
    classes: int = 3,
    train: int = 240,
    share: float = 0.15,
    noise: float = 0.4,
    device: str = "cpu",
) -> Toy:
    """Eight features: three say the cue clearly, three the label less so, two nothing.

    `noise` blurs the label's features: the more, the later the label itself is learned.
    """
    rng = np.random.default_rng(5)
    y, cue = _labels(rng, classes, train, share)
    x = rng.normal(0, 1, (len(y), 8)).astype(np.float32)
    x[:, :classes] = 3.0 * np.eye(classes)[cue] + rng.normal(0, 0.3, (len(y), classes))
    x[:, 3 : 3 + classes] = 2.0 * np.eye(classes)[y] + rng.normal(0, noise, (len(y), classes))
    mean, std = torch.from_numpy(x).mean(0), torch.from_numpy(x).std(0)

    def network(seed: int, hidden: int) -> Any:
        made = build(NetworkSpec(LINEAR, (8,), classes, hidden=hidden), seed)
        made.standardise(mean, std)
        return made.to(device)

    content = FeatureArray(x, np.arange(len(y)))
    return _toy(content, y, cue, classes, train, network, seed, device)


def images(seed: int = 0, train: int = 160, share: float = 0.15, device: str = "cpu") -> Toy:
    """12 x 12 pixels: the background's colour is the cue, a bar's direction the label."""
    rng = np.random.default_rng(6)
    y, cue = _labels(rng, 2, train, share)
    x = rng.integers(0, 60, (len(y), 12, 12, 3))
    for i in range(len(y)):
        x[i, :, :, 2 * cue[i]] += 100
        at = rng.integers(3, 9)
        x[i, at : at + 2, :] = 255 if y[i] else x[i, at : at + 2, :]
        x[i, :, at : at + 2] = x[i, :, at : at + 2] if y[i] else 255
    content = ImageArray(x.clip(0, 255).astype(np.uint8), np.arange(len(y)))
    spec = NetworkSpec(SMALL, (3, 12, 12), 2)
    return _toy(
        content, y, cue, 2, train, lambda seed, hidden: build(spec, seed).to(device), seed, device
    )


TOYS: dict[str, Callable[..., Toy]] = {"features": features, "images": images}


def _labels(rng: Any, classes: int, train: int, share: float) -> tuple[Any, Any]:
    """Labels and cues of a biased training part and a held-out part without the bias."""
    held = 40 * classes
    y = np.arange(train + held) % classes
    conflict = rng.random(len(y)) < np.where(np.arange(len(y)) < train, share, 0.5)
    return y, (y + conflict * rng.integers(1, classes, len(y))) % classes


def _toy(
    content: Any, y: Any, cue: Any, classes: int, train: int, network: Any, seed: int, name: str
) -> Toy:
    device = torch.device(name)
    rows = torch.arange(len(y), device=device)
    targets = torch.from_numpy(y).long().to(device)
    task = Task(Inputs(content, device), rows, targets, classes, network, device, seed)
    conflict = torch.from_numpy(cue != y).to(device)
    return Toy(
        task.subset(rows[:train]), task.subset(rows[train:]), conflict[:train], conflict[train:]
    )


def accuracy(network: nn.Module, task: Task) -> float:
    with evaluating(network):
        logits = predict(network, task, torch.arange(len(task)))
    return float((logits.argmax(1) == task.targets).double().mean())


# Over features these fit a last layer at once; `auto` looks at no epoch of its trainings.
ONE_LOOK = frozenset({"afr", "cbllr", "dfr", "dpe"})  # their first training is not looked at
AT_ONCE = frozenset({"auto", "erm", "resample", "ccdb"}) | ONE_LOOK
SETTINGS = {
    "features": {
        "epochs": 12,
        "optimizer": "adam",
        "lr": 0.05,
        "batch": 32,
        "weight_decay": 0.0,
        "schedule": "constant",
    },
    "images": {
        "epochs": 6,
        "optimizer": "adam",
        "lr": 2e-3,
        "batch": 32,
        "weight_decay": 0.0,
        "schedule": "constant",
    },
}


def fit(cls: Any, toy: Toy, session: Session | None = None, **settings: Any) -> tuple[Any, Any]:
    """The fitted method and its network; it gets what it needs and nothing else."""
    method = cls(cls.config_class(**settings))
    return method, method.fit(toy.train, toy.help(method.needs), session or Session())
