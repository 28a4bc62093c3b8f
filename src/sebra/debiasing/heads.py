"""Last layers over fixed features, their strength chosen by cross-validation.

Every head that is fitted to features is one of these: inputs standardised, a convex solver, and
held-out logits of every sample, from which strength, balance and temperature are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.choosing import calibrated, temperature
from sebra.debiasing.last_layer import embedded, set_head
from sebra.debiasing.method import Help
from sebra.engine.logistic import logistic_regression, logits_of
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.task import Task

# scikit-learn's C: one over the penalty and the number of samples.
STRENGTHS = tuple(10.0**k for k in range(-4, 3))
FOLDS = 5
_MOST_LOGITS = 100_000  # samples x classes that cross-validation looks at
_FEWEST = 2_000
_PATIENCE = 2  # strengths without a gain


@dataclass(frozen=True)
class Examples:
    """Standardised features with labels, cut into folds. centre: a head that is known already."""

    x: Tensor
    y: Tensor
    classes: int
    fold: Tensor
    centre: Tensor | None = None

    @classmethod
    def of(
        cls, x: Tensor, y: Tensor, classes: int, seed: int, centre: Tensor | None = None
    ) -> Examples:
        """Every class is spread evenly over the folds."""
        labels = y.cpu().numpy()
        rng = np.random.default_rng(seed)
        fold = np.empty(len(labels), dtype=np.int64)
        for c in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == c))
            fold[members] = (np.arange(len(members)) + rng.integers(FOLDS)) % FOLDS
        return cls(x, y.to(x.device), classes, torch.from_numpy(fold).to(x.device), centre)

    def held_out(self, weights: Tensor, strengths: Sequence[float]) -> Tensor:
        """Logits (strengths x n x classes) of heads that were fitted without the sample."""
        heads: list[Tensor | None] = [None] * FOLDS
        return torch.stack([self._without(weights, c, heads) for c in strengths])

    def best(self, weights: Tensor, score: Callable[[Tensor], float]) -> tuple[int, list[Tensor]]:
        """The position of the best strength, and the held-out logits of all that were tried.

        Strengths rise until two in a row have a lower score than the best before them.
        """
        heads: list[Tensor | None] = [None] * FOLDS
        scores: list[float] = []
        tried: list[Tensor] = []
        for c in STRENGTHS:
            tried.append(self._without(weights, c, heads))
            scores.append(score(tried[-1]))
            if len(scores) - np.argmax(scores) > _PATIENCE:
                break
        return int(np.argmax(scores)), tried

    def _without(self, weights: Tensor, strength: float, heads: list[Tensor | None]) -> Tensor:
        """Held-out logits at one strength; `heads`, of a lower one, only save time."""
        weights = weights.to(self.x.device)
        out = torch.zeros(len(self.y), self.classes, device=self.x.device)
        for k in range(FOLDS):
            here, there = self.fold != k, self.fold == k
            given = self.x[here], self.y[here], self.classes, weights[here], strength
            heads[k] = head = fitted(*given, self.centre, heads[k])
            out[there] = logits_of(self.x[there], head)
        return out


def fitted(
    x: Tensor,
    y: Tensor,
    classes: int,
    weights: Tensor,
    strength: float,
    centre: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """The head of these samples at a strength, which means the same for any number of samples."""
    penalty = 1.0 / (strength * max(1, len(x)))
    return logistic_regression(x, y, classes, penalty, weights, centre, start)


def judging(y: Tensor, classes: int, seed: int) -> Tensor:
    """Which samples are held out in turn: all, or as many as can be in a sensible time."""
    most = max(_FEWEST, _MOST_LOGITS // classes)
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(len(y), generator=generator)[:most].sort().values


def told(logits: Tensor, y: Tensor, weights: Tensor) -> float:
    """Weighted share of samples that are told rightly; of equals the surest has more."""
    y, share = y.to(logits.device), (weights / weights.sum()).to(logits.device)
    accuracy = float((share * (logits.argmax(1) == y)).sum())
    return accuracy - 1e-4 * float((share * F.cross_entropy(logits, y, reduction="none")).sum())


@dataclass(frozen=True)
class CrossHead:
    """Over how many columns a head is, its strength, and held-out logits."""

    data: Examples
    at: int  # position of its strength
    logits: Tensor
    tried: Sequence[Tensor]  # at every strength that was looked at
    heat: float = 1.0  # what the head is divided by

    @property
    def columns(self) -> int:
        return self.data.x.shape[1]

    def of_all(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """The head of its columns and strength fitted to all these samples, over all columns."""
        own = x[:, : self.columns].contiguous()
        head = fitted(own, y, self.data.classes, weights, STRENGTHS[self.at])
        return padded(head / self.heat, x.shape[1])

    def of_all_strengths(self) -> list[CrossHead]:
        """Over the same columns, one at every strength that was looked at."""
        return [replace(self, at=at, logits=z) for at, z in enumerate(self.tried)]

    def calibrated(self, y: Tensor, shares: Tensor) -> CrossHead:
        """The same with probabilities that held-out samples, each counting its share, confirm."""
        heat = temperature(self.logits, y, shares)
        return replace(self, logits=self.logits / heat, heat=self.heat * heat)


def plain_head(x: Tensor, y: Tensor, task: Task, weights: Tensor) -> CrossHead:
    """The head of weighted samples: over all columns, or over the first (`Task.core`) alone.

    Whichever gives the samples that it was not fitted to the more likely probabilities.
    """
    found = _over_columns(x, y, task, weights, lambda z: told(z, y, weights))
    return min(found, key=lambda one: calibrated(one.logits, y, weights))


def even_heads(x: Tensor, y: Tensor, task: Task, weights: Tensor) -> list[CrossHead]:
    """Heads where rare groups count as much as others, over either columns and at every strength.

    A handful of hits would say little, so strengths end where probabilities get worse.
    """
    found = _over_columns(x, y, task, weights, lambda z: -calibrated(z, y, weights))
    return [one for head in found for one in head.of_all_strengths()]


def _over_columns(
    x: Tensor, y: Tensor, task: Task, weights: Tensor, score: Callable[[Tensor], float]
) -> list[CrossHead]:
    found = []
    for columns in dict.fromkeys((x.shape[1], task.core or x.shape[1])):
        data = Examples.of(x[:, :columns].contiguous(), y, task.classes, task.seed)
        at, tried = data.best(weights, score)
        found.append(CrossHead(data, at, tried[at], tried))
    return found


def padded(head: Tensor, columns: int) -> Tensor:
    """A head over the first columns as one over so many."""
    zeros = head.new_zeros(columns + 1 - len(head), head.shape[1])
    return torch.cat([head[:-1], zeros, head[-1:]])


def fit_head(task: Task, weights: Tensor) -> Network:
    """A network over features whose last layer is the cross-validated head of weighted samples.

    Its strength is the one with the highest weighted accuracy on held-out samples, which also give
    the temperature.
    """
    network = task.network()
    x, mean, std = embedded(network, task)
    y, weights = task.targets.cpu(), weights.float().cpu()
    rows = judging(y, task.classes, task.seed)
    plain = plain_head(x[rows], y[rows], task, weights[rows])
    plain = plain.calibrated(y[rows], torch.ones(len(rows)))
    set_head(network, plain.of_all(x, y, weights), mean, std)
    return network


def fit_head_once(task: Task, weights: Tensor, help: Help, session: Session) -> Network:
    """The same as a method's whole training: kept in the checkpoint, one row of history."""
    found = session.once("head", lambda: dict(fit_head(task, weights).state_dict()))
    network = task.network()
    network.load_state_dict(found)
    with evaluating(network):
        logits = predict(network, task, torch.arange(len(task)))
    help.selector.settle(0, network, float(F.cross_entropy(logits, task.targets)))
    return network
