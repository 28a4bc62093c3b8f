"""Last layers over fixed features, their strength chosen by cross-validation.

Every head that is fitted to features is one of these: inputs standardised, a convex solver, and
held-out logits of every sample, from which strength, balance and temperature are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.choosing import temperature
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
        weights = weights.to(self.x.device)
        out = torch.zeros(len(strengths), len(self.y), self.classes, device=self.x.device)
        for k in range(FOLDS):
            here, there = self.fold != k, self.fold == k
            head = None
            for i, c in enumerate(strengths):
                given = self.x[here], self.y[here], self.classes, weights[here], c
                head = fitted(*given, self.centre, head)
                out[i, there] = logits_of(self.x[there], head)
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


def best_strength(logits: Tensor, y: Tensor, weights: Tensor) -> int:
    """The position of the strength with the highest weighted accuracy, of equals the surest."""
    y, share = y.to(logits.device), (weights / weights.sum()).to(logits.device)
    scores = []
    for z in logits:
        accuracy = float((share * (z.argmax(1) == y)).sum())
        surprise = float((share * F.cross_entropy(z, y, reduction="none")).sum())
        scores.append(accuracy - 1e-4 * surprise)
    return int(np.argmax(scores))


def fit_head(task: Task, weights: Tensor) -> Network:
    """A network over features whose last layer is the cross-validated head of weighted samples.

    Its strength is the one with the highest weighted accuracy on held-out samples, which also give
    the temperature.
    """
    network = task.network()
    x, mean, std = embedded(network, task)
    y, weights = task.targets.cpu(), weights.float().cpu()
    rows = judging(y, task.classes, task.seed)
    seen, ones = weights[rows], torch.ones(len(rows))
    logits = Examples.of(x[rows], y[rows], task.classes, task.seed).held_out(seen, STRENGTHS)
    at = best_strength(logits, y[rows], seen)
    head = fitted(x, y, task.classes, weights, STRENGTHS[at])
    set_head(network, head / temperature(logits[at], y[rows], ones), mean, std)
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
