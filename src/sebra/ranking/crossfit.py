"""Held-out predictions: every sample is judged by a model that was trained without it.

A model's opinion of a sample it has trained on says that it was memorised; its opinion of one it
has not seen says which cue it goes by.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.engine.features import moments
from sebra.engine.logistic import logistic_regression, logits_of
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.step import TrainStep, make_optimizer, train_epoch, weighted_draws
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.ranking.folds import stratified_folds
from sebra.ranking.formulas import weighted_loss

_MOST_TO_FIT = 60_000  # samples a head is fitted to; it judges all the others
_BLOCK = 8192
_CONSTANT = 1e-6  # a column whose spread is this share of its values is rounding
_PART = 50  # steps of a network between two looks at the clock and the checkpoint


class Judge(Protocol):
    """Held-out logits (n x classes, on the CPU), given targets and weights of the samples.

    head: of the last call, d + 1 x classes over standardised features; None over networks.
    """

    head: Tensor | None

    def tell_class(self, targets: Tensor, weights: Tensor) -> Tensor:
        """By models that go for the easiest cue."""
        ...

    def tell_apart(self, targets: Tensor, weights: Tensor) -> Tensor:
        """By supple heads over what the models of the last `tell_class` see."""
        ...


class HeadJudge:
    """Ridge regressions onto the classes over frozen features, every sample left out in turn.

    A sample's own share in a ridge regression is known in closed form, so that leaving it out costs
    no second fit, and no folds that would depend on the order of the samples. The features are
    standardised: units and shifts of columns say nothing. penalties: the first, stronger one leaves
    only the easiest cues; the second is for telling apart.
    """

    def __init__(self, task: Task, penalties: tuple[float, float]) -> None:
        self.task, self.penalties = task, penalties
        mean, std = moments(task.inputs)
        apart = std > _CONSTANT * (mean.abs() + std)
        self.shift = mean
        # Divided by the root of the dimension, so that one penalty suits every width.
        self.scale = torch.where(apart, 1 / (std.clamp_min(1e-30) * len(std) ** 0.5), 0.0)
        self.head: Tensor | None = None
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
            weighted = (x * w[part, None]).T
            gram += weighted @ x
            moment += weighted @ y[part]
        gram.diagonal()[:-1].add_(penalty)
        root = torch.linalg.cholesky(gram)
        head = torch.cholesky_solve(moment, root)
        out = torch.empty(len(self.task), self.task.classes)
        for part in torch.split(torch.arange(len(self.task), device=device), _BLOCK):
            x = self._features(part)
            share = w[part] * torch.linalg.solve_triangular(root, x.T, upper=False).square().sum(0)
            left_out = (x @ head - share[:, None] * y[part]) / (1 - share).clamp_min(1e-6)[:, None]
            out[part.cpu()] = left_out.float().cpu()
        self.head = head.float().cpu()
        return out

    def _features(self, rows: Tensor) -> Tensor:
        x = (self.task.batch(rows).double() - self.shift) * self.scale
        return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype, device=x.device)], 1)

    def _chosen(self) -> Tensor:
        """1 for samples that teach: all, or of very many some, by content and not by place."""
        everyone = torch.arange(len(self.task), device=self.task.device)
        if len(everyone) <= _MOST_TO_FIT:
            return torch.ones(len(everyone), dtype=torch.float64, device=self.task.device)
        sums = torch.cat([self._features(p).sum(1) for p in torch.split(everyone, _BLOCK)])
        step = -(-len(everyone) // _MOST_TO_FIT)
        return (sums.argsort().argsort() % step == 0).double()


class NetworkJudge:
    """Fresh networks, one per fold, each trained for a few steps on weighted draws.

    They train with the `u` weighting of the ranking objective, which holds on to the easiest cue.
    Telling apart takes heads over what these networks have come to see: a few rare samples are
    enough for a head and too few for a network.
    """

    def __init__(self, task: Task, session: Session, config: Any) -> None:
        self.task = replace(task, augment=Augment(config.flip, config.crop))
        self.session, self.config = session, config
        self.fold = _folds(task, config.folds, task.generator(31))
        self.head: Tensor | None = None
        self._seen: list[Tensor] = []  # per fold, the embedding of every sample
        self._batch = config.batch or 128
        self.epoch = max(1.0, len(task) * (1 - 1 / config.folds) / self._batch)  # in steps

    def tell_class(self, targets: Tensor, weights: Tensor) -> Tensor:
        out = torch.empty(len(self.task), self.task.classes)
        everyone = torch.arange(len(self.task), device=self.task.device)
        self._seen = []
        for k in range(self.config.folds):
            rows = (self.fold != k).nonzero().squeeze(1)
            network = self._train(targets, weights, rows, k)
            with evaluating(network), torch.no_grad():
                z = predict(network.embed, self.task, everyone)
                logits = network.classify(z)
            out[self.fold == k] = logits.float().cpu()[self.fold == k]
            self._seen.append(_standardised(z))
        return out

    def tell_apart(self, targets: Tensor, weights: Tensor) -> Tensor:
        out = torch.empty(len(self.task), self.task.classes)
        y = targets.to(self.task.device)
        for k, x in enumerate(self._seen):
            used = ((self.fold != k) & (weights > 0)).nonzero().squeeze(1).to(x.device)
            share = weights.float().to(x.device)[used]
            penalty = 2 * self.config.penalty_contrast
            head = logistic_regression(x[used], y[used], self.task.classes, penalty, share)
            out[self.fold == k] = logits_of(x, head).cpu()[self.fold == k]
        return out

    def _train(self, targets: Tensor, weights: Tensor, rows: Tensor, k: int) -> Network:
        cfg, task = self.config, self.task
        network = task.network(offset=k)
        network.train()
        optimizer = make_optimizer(network, cfg.optimizer, cfg.lr, cfg.weight_decay, cfg.momentum)
        y = targets.to(task.device)

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            logits = network(task.batch(index, rand))
            return weighted_loss(logits, y[index], cfg.beta)

        step = TrainStep(network, optimizer, loss, task.device, randoms=task.randoms)
        generator = task.generator(101 + k)
        batch = min(self._batch, len(rows))
        state = {"network": network, "optimizer": optimizer, "generator": generator}
        parts = -(-cfg.steps // _PART)
        for part in self.session.phase(f"fold {k + 1}", parts, state):
            draws = min(_PART, cfg.steps - part * _PART) * batch
            drawn = rows[weighted_draws(weights[rows], draws, batch, generator)]
            train_epoch(step, drawn, generator)
        return network


def signs(labels: Tensor, classes: int) -> Tensor:
    """1 for the class of a sample, -1 for the others: what a regression onto classes wants."""
    return F.one_hot(labels, classes).double() * 2 - 1


def _standardised(z: Tensor) -> Tensor:
    """Every column with mean zero; divided by its spread and the root of the dimension."""
    std, mean = torch.std_mean(z, dim=0, correction=0)
    out: Tensor = (z - mean) / (std.clamp_min(1e-6) * z.shape[1] ** 0.5)
    return out


def _folds(task: Task, folds: int, generator: torch.Generator) -> Tensor:
    shuffle = torch.randperm(len(task), generator=generator).numpy()
    return torch.from_numpy(stratified_folds(task.targets.cpu().numpy(), folds, shuffle))
