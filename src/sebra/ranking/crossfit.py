"""Held-out predictions: every sample is judged by a model that was trained without it.

A model's opinion of a sample it has trained on says that it was memorised; its opinion of one it
has not seen says which cue it goes by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.step import TrainStep, make_optimizer, train_epoch
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.ranking.formulas import weighted_loss

_MOST_TO_FIT = 60_000  # samples a head is fitted to; it judges all the others
_BLOCK = 8192
_STEPS = 40


class Judge(Protocol):
    """Held-out logits (n x classes, on the CPU) for any targets and sample weights."""

    def __call__(self, targets: Tensor, weights: Tensor, name: str, stiff: bool) -> Tensor: ...


class HeadJudge:
    """Logistic regressions over frozen features, one per fold.

    stiff: a stronger penalty, which leaves only the easiest cue; else a weaker one.
    """

    def __init__(self, task: Task, folds: int, penalties: tuple[float, float]) -> None:
        self.task, self.folds, self.penalties = task, folds, penalties
        generator = task.generator(31)
        n = len(task)
        self.fold = _folds(task.targets.cpu(), folds, generator).to(task.device)
        self.rows = torch.randperm(n, generator=generator)[:_MOST_TO_FIT].sort().values
        self.rows = self.rows.to(task.device)
        self._embed = task.network().embed
        self._x = self._features(self.rows)

    @torch.no_grad()
    def _features(self, rows: Tensor) -> Tensor:
        parts = [self._embed(self.task.batch(part)).float() for part in rows.split(_BLOCK)]
        return torch.cat(parts)

    def __call__(self, targets: Tensor, weights: Tensor, name: str, stiff: bool) -> Tensor:
        penalty = self.penalties[0] if stiff else self.penalties[1]
        y, w = targets.to(self.task.device), weights.to(self.task.device).float()
        heads = []
        for k in range(self.folds):
            share = torch.where(self.fold != k, w, torch.zeros_like(w))[self.rows]
            heads.append(_fit(self._x, y[self.rows], share, self.task.classes, penalty))
        out = torch.empty(len(self.task), self.task.classes)
        whole = len(self.rows) == len(self.task)
        for part in torch.arange(len(self.task), device=self.task.device).split(_BLOCK):
            x = self._x[part] if whole else self._features(part)
            every = torch.stack([x @ h[:-1] + h[-1] for h in heads])
            mine = every[self.fold[part], torch.arange(len(part), device=part.device)]
            out[part.cpu()] = mine.cpu()
        return out


def _fit(x: Tensor, y: Tensor, weights: Tensor, classes: int, penalty: float) -> Tensor:
    """Weights (d + 1 x classes) that minimise the weighted cross-entropy plus penalty·|w|²."""
    used = weights.nonzero().squeeze(1)
    head = torch.zeros(x.shape[1] + 1, classes, device=x.device, requires_grad=True)
    if len(used) == 0:
        return head.detach()
    x, y, share = x[used], y[used], weights[used] / weights.sum()
    optimizer = torch.optim.LBFGS(
        [head], max_iter=_STEPS, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        each = F.cross_entropy(x @ head[:-1] + head[-1], y, reduction="none")
        value = (share * each).sum() + penalty * head[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return head.detach()


class NetworkJudge:
    """Fresh networks, one per fold, each trained for a few epochs on weighted draws.

    stiff: with the `u` weighting of the ranking objective, which holds on to the easiest cue.
    """

    def __init__(self, task: Task, session: Session, config: Any) -> None:
        self.task = replace(task, augment=Augment(config.flip, config.crop))
        self.session, self.config = session, config
        self.fold = _folds(task.targets.cpu(), config.folds, task.generator(31))

    def __call__(self, targets: Tensor, weights: Tensor, name: str, stiff: bool) -> Tensor:
        out = torch.empty(len(self.task), self.task.classes)
        for k in range(self.config.folds):
            seen, unseen = (self.fold != k).nonzero(), (self.fold == k).nonzero()
            network = self._train(targets, weights, seen.squeeze(1), f"{name}-{k}", k, stiff)
            with evaluating(network):
                rows = unseen.squeeze(1)
                out[rows] = predict(network, self.task, rows.to(self.task.device)).cpu()
        return out

    def _train(
        self, targets: Tensor, weights: Tensor, rows: Tensor, name: str, k: int, stiff: bool
    ) -> torch.nn.Module:
        cfg, task = self.config, self.task
        network = task.network(offset=k)
        network.train()
        optimizer = make_optimizer(network, cfg.optimizer, cfg.lr, cfg.weight_decay, cfg.momentum)
        y = targets.to(task.device)

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            logits = network(task.batch(index, rand))
            return weighted_loss(logits, y[index], cfg.beta, use_u=stiff)

        step = TrainStep(network, optimizer, loss, task.device, randoms=task.randoms)
        generator = task.generator(sum(map(ord, name)))
        draw = _draws(weights[rows], rows, min(cfg.batch or 128, len(rows)), generator)
        state = {"network": network, "optimizer": optimizer, "generator": generator}
        epochs = cfg.passes if stiff else cfg.passes_contrast
        for _ in self.session.phase(name, epochs, state):
            train_epoch(step, draw(), generator)
        return network


def _draws(
    weights: Tensor, rows: Tensor, batch: int, generator: torch.Generator
) -> Callable[[], Tensor]:
    """Draws from `rows` in proportion to their weights, as many as there are rows."""
    cumulative = weights.double().cumsum(0)
    steps = max(1, -(-len(rows) // batch))

    def draw() -> Tensor:
        at = torch.rand(steps * batch, generator=generator, dtype=torch.float64) * cumulative[-1]
        picked = torch.searchsorted(cumulative, at, right=True).clamp(max=len(rows) - 1)
        return rows[picked].view(steps, batch)

    return draw


def _folds(labels: Tensor, folds: int, generator: torch.Generator) -> Tensor:
    """A fold per sample, each class spread evenly over the folds."""
    shuffle = torch.randperm(len(labels), generator=generator)
    order = shuffle[torch.argsort(labels[shuffle], stable=True)]
    fold = torch.empty(len(labels), dtype=torch.long)
    fold[order] = torch.arange(len(labels)) % folds
    return fold
