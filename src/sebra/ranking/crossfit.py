"""Held-out predictions: every sample is judged by a model that was trained without it.

A model's opinion of a sample it has trained on says that it was memorised; its opinion of one it
has not seen says which cue it goes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.engine.features import moments
from sebra.engine.logistic import logistic_regression, logits_of
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.ranking.noise_heads import stratified_folds
from sebra.ranking.retraining import Retrained, State, state_of

_MOST_TO_FIT = 60_000  # samples a head is fitted to; it judges all the others
_MOST_HELD = 2**26  # numbers that are kept standardised; more are read anew every time
_BLOCK = 8192
_CONSTANT = 1e-6  # a column whose spread is this share of its values is rounding


class Judge(Protocol):
    """Held-out logits (n x classes, on the CPU), given targets and weights of the samples.

    head: of the last call, d + 1 x classes over standardised features; None over networks.
    """

    head: Tensor | None

    def tell_class(self, targets: Tensor, weights: Tensor) -> Tensor:
        """By models that go for the easiest cue."""

    def tell_apart(self, targets: Tensor, weights: Tensor) -> Tensor:
        """By supple heads over what the models of the last `tell_class` see."""


class HeadJudge:
    """Ridge regressions onto the classes over frozen features, every sample left out in turn.

    Leaving a sample out is known in closed form: no second fit, no folds, which would depend on the
    order of the samples. Features are standardised: units and shifts of columns say nothing.
    penalties: the first, stronger one leaves the easiest cues; the second is for telling apart.
    """

    def __init__(self, task: Task, penalties: tuple[float, float]) -> None:
        self.task, self.penalties = task, penalties
        self.shift, self.scale = _standardising(task)
        self.head: Tensor | None = None
        # A CPU takes twice as long for float64; a GPU would round products of float32 coarsely.
        self._dtype = torch.float32 if task.device.type == "cpu" else torch.float64
        self._held: Tensor | None = None
        if len(task) * len(self.scale) <= _MOST_HELD:
            self._held = self._features(torch.arange(len(task), device=task.device))
        self._teachers = self._chosen()

    def tell_class(self, targets: Tensor, weights: Tensor) -> Tensor:
        return self._judge(targets, weights, self.penalties[0])

    def tell_apart(self, targets: Tensor, weights: Tensor) -> Tensor:
        return self._judge(targets, weights, self.penalties[1])

    def _judge(self, targets: Tensor, weights: Tensor, penalty: float) -> Tensor:
        device = self.task.device
        w = weights.to(device).double() * self._teachers
        w = w / w.sum()
        y = signs(targets.to(device), self.task.classes)
        size = len(self.scale) + 1
        gram = torch.zeros(size, size, dtype=torch.float64, device=device)
        moment = torch.zeros(size, self.task.classes, dtype=torch.float64, device=device)
        teaching = w.nonzero().squeeze(1)
        for part in torch.split(teaching, _BLOCK):
            x = self._features(part)
            weighted = (x * w[part, None].to(x)).T
            gram += weighted @ x
            moment += weighted @ y[part].to(x)
        gram.diagonal()[:-1].add_(penalty)
        root = torch.linalg.cholesky(gram)
        head = torch.cholesky_solve(moment, root)
        lower, found = root.to(self._dtype), head.to(self._dtype)
        out = torch.empty(len(self.task), self.task.classes)
        for part in torch.split(torch.arange(len(self.task), device=device), _BLOCK):
            x = self._features(part)
            share, taught = w[part], w[part] > 0  # the head does not depend on the others
            root_x = torch.linalg.solve_triangular(lower, x[taught].T, upper=False)
            share[taught] *= root_x.square().sum(0)
            left_out = (x @ found - share[:, None] * y[part]) / (1 - share).clamp_min(1e-6)[:, None]
            out[part.cpu()] = left_out.float().cpu()
        self.head = head.float().cpu()
        return out

    def _features(self, rows: Tensor) -> Tensor:
        if self._held is not None:
            return self._held[rows]
        x = (self.task.batch(rows).to(self._dtype) - self.shift) * self.scale
        return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype, device=x.device)], 1)

    def _chosen(self) -> Tensor:
        """1 for samples that teach: all, or of very many some, by content and not by place."""
        step = -(-len(self.task) // _MOST_TO_FIT)
        place = torch.zeros(len(self.task)) if step == 1 else by_content(self.task).argsort()
        return (place % step == 0).double().to(self.task.device)


class NetworkJudge:
    """Fresh networks, one per fold, each trained for a few steps on weighted draws.

    They train with the `u` weighting of the ranking objective, which holds on to the easiest cue.
    Telling apart takes heads over what they see: rare samples are too few for a network.
    """

    def __init__(self, task: Task, session: Session, config: Any) -> None:
        self.task = replace(task, augment=Augment(config.flip, config.crop))
        self.session, self.config = session, config
        shuffle = torch.randperm(len(task), generator=task.generator(31)).numpy()
        folds = stratified_folds(task.targets.cpu().numpy(), config.folds, shuffle)
        self.fold = torch.from_numpy(folds)
        self.head: Tensor | None = None
        # Per fold the weights, and on the host what the network sees of samples that teach heads.
        self._trained: list[tuple[State, Tensor]] = []
        teach = torch.randperm(len(task), generator=task.generator(37))[:_MOST_TO_FIT]
        self._teach = teach.sort().values
        self._batch = config.batch or 128
        self.epoch = max(1.0, len(task) * (1 - 1 / config.folds) / self._batch)  # in steps
        rows = len(task) - int(torch.bincount(self.fold).max())
        self._training = Retrained(self.task, session, config, max(1, min(self._batch, rows)))

    def tell_class(self, targets: Tensor, weights: Tensor) -> Tensor:
        out = torch.empty(len(self.task), self.task.classes)
        self._trained = []
        for k in range(self.config.folds):
            rows = (self.fold != k).nonzero().squeeze(1)
            network = self._training.train(targets, weights, rows, k)
            for part in self._judged(k):
                with torch.no_grad():
                    out[part] = network.classify(self._embedded(part)).float().cpu()
            self._trained.append((state_of(network), self._embedded(self._teach).cpu()))
        return out

    def tell_apart(self, targets: Tensor, weights: Tensor) -> Tensor:
        out = torch.empty(len(self.task), self.task.classes)
        device, penalty = self.task.device, 2 * self.config.penalty_contrast
        whole = len(self._teach) == len(self.task)
        for k, (trained, z) in enumerate(self._trained):
            std, shift = torch.std_mean(z, dim=0, correction=0)
            scale = 1 / (std.clamp_min(1e-6) * z.shape[1] ** 0.5)
            used = ((self.fold[self._teach] != k) & (weights[self._teach] > 0)).nonzero().squeeze(1)
            x, chosen = ((z - shift) * scale)[used].to(device), self._teach[used]
            y, share = targets[chosen].to(device), weights[chosen].float().to(device)
            head = logistic_regression(x, y, self.task.classes, penalty, share)
            if not whole:
                self._training.network.load_state_dict(trained)
            for part in self._judged(k):
                seen = z[part] if whole else self._embedded(part).cpu()
                out[part] = logits_of(((seen - shift) * scale).to(device), head).cpu()
        return out

    def _judged(self, k: int) -> Sequence[Tensor]:
        """The samples that fold `k` was trained without, in blocks."""
        return torch.split((self.fold == k).nonzero().squeeze(1), _BLOCK)

    def _embedded(self, index: Tensor) -> Tensor:
        network = self._training.network
        with evaluating(network):
            return predict(network.embed, self.task, index.to(self.task.device))


def signs(labels: Tensor, classes: int) -> Tensor:
    """1 for the class of a sample, -1 for the others: what a regression onto classes wants."""
    return F.one_hot(labels, classes).double() * 2 - 1


def by_content(task: Task) -> Tensor:
    """The samples of a task over features, on the CPU, in an order that their places, the units of
    columns and the names of classes do not decide: what is drawn from it is drawn by content."""
    shift, scale = _standardising(task)
    parts = torch.split(torch.arange(len(task), device=task.device), _BLOCK // 8)  # float64
    sums = [((task.batch(part) - shift).double() * scale).sum(1).cpu() for part in parts]
    return torch.cat(sums).argsort(stable=True)


def _standardising(task: Task) -> tuple[Tensor, Tensor]:
    """What is taken off every feature and what it is multiplied by, 0 where it is constant.

    Divided by the root of the dimension, so that one penalty suits every width.
    """
    mean, std = moments(task.inputs)
    apart = std > _CONSTANT * (mean.abs() + std)
    return mean, torch.where(apart, 1 / (std.clamp_min(1e-30) * len(std) ** 0.5), 0.0)
