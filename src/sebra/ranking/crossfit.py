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
PASSES = 40  # of the optimiser of a head
_PART = 50  # steps of a network between two looks at the clock and the checkpoint


class Judge(Protocol):
    """Held-out logits (n x classes, on the CPU), given targets and weights of the samples."""

    def tell_class(self, targets: Tensor, weights: Tensor) -> Tensor:
        """By models that go for the easiest cue."""
        ...

    def tell_apart(self, targets: Tensor, weights: Tensor) -> Tensor:
        """By supple heads over what the models of the last `tell_class` see."""
        ...


class HeadJudge:
    """Logistic regressions over frozen features, one per fold.

    penalties: the first, stronger one leaves only the easiest cue; the second is for telling apart.
    passes: how far the optimiser goes when the class is told.
    """

    def __init__(
        self, task: Task, folds: int, penalties: tuple[float, float], passes: int = PASSES
    ) -> None:
        self.task, self.folds, self.penalties, self.passes = task, folds, penalties, passes
        generator = task.generator(31)
        self.fold = _folds(task, folds, generator).to(task.device)
        rows = torch.randperm(len(task), generator=generator)[:_MOST_TO_FIT].sort().values
        self.rows = rows.to(task.device)
        self._embed = task.network().embed
        self._x = self._features(self.rows)

    @torch.no_grad()
    def _features(self, rows: Tensor) -> Tensor:
        parts = [self._embed(self.task.batch(part)).float() for part in torch.split(rows, _BLOCK)]
        return torch.cat(parts)

    def tell_class(self, targets: Tensor, weights: Tensor) -> Tensor:
        return self._judge(targets, weights, self.penalties[0], self.passes)

    def tell_apart(self, targets: Tensor, weights: Tensor) -> Tensor:
        return self._judge(targets, weights, self.penalties[1])

    def _judge(
        self, targets: Tensor, weights: Tensor, penalty: float, passes: int = PASSES
    ) -> Tensor:
        device, classes = self.task.device, self.task.classes
        y, w = targets.to(device), weights.to(device).float()
        heads = []
        for k in range(self.folds):
            share = torch.where(self.fold != k, w, torch.zeros_like(w))[self.rows]
            heads.append(_fit(self._x, y[self.rows], share, classes, penalty, passes))
        out = torch.empty(len(self.task), classes)
        whole = len(self.rows) == len(self.task)
        for part in torch.split(torch.arange(len(self.task), device=device), _BLOCK):
            x = self._x[part] if whole else self._features(part)
            every = torch.stack([x @ h[:-1] + h[-1] for h in heads])
            mine = every[self.fold[part], torch.arange(len(part), device=device)]
            out[part.cpu()] = mine.cpu()
        return out


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
            share = torch.where(self.fold != k, weights.float(), torch.zeros(())).to(x.device)
            head = _fit(x, y, share, self.task.classes, self.config.penalty_contrast)
            out[self.fold == k] = (x @ head[:-1] + head[-1]).cpu()[self.fold == k]
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


def _standardised(z: Tensor) -> Tensor:
    """Every column with mean zero; divided by its spread and the root of the dimension."""
    std, mean = torch.std_mean(z, dim=0, correction=0)
    out: Tensor = (z - mean) / (std.clamp_min(1e-6) * z.shape[1] ** 0.5)
    return out


def _fit(
    x: Tensor, y: Tensor, weights: Tensor, classes: int, penalty: float, passes: int = PASSES
) -> Tensor:
    """Weights (d + 1 x classes) that minimise the weighted cross-entropy plus penalty·|w|²."""
    used = weights.nonzero().squeeze(1)
    head = torch.zeros(x.shape[1] + 1, classes, device=x.device, requires_grad=True)
    if len(used) == 0:
        return head.detach()
    x, y, share = x[used], y[used], weights[used] / weights.sum()
    optimizer = torch.optim.LBFGS(
        [head], max_iter=passes, history_size=10, line_search_fn="strong_wolfe"
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


def _folds(task: Task, folds: int, generator: torch.Generator) -> Tensor:
    shuffle = torch.randperm(len(task), generator=generator).numpy()
    return torch.from_numpy(stratified_folds(task.targets.cpu().numpy(), folds, shuffle))
