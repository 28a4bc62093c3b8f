"""The ranking algorithm once more, with loops only: slow, plain, and independent of the package."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import lambertw

from sebra.ranking.formulas import p_critical_of


class Round(NamedTuple):
    weights: np.ndarray
    bias: np.ndarray
    learned: np.ndarray
    loss: float


class Naive:
    """A linear softmax head, stepped by hand, on features that are standardised already."""

    def __init__(self, x, y, classes, lr, momentum, decay, beta, p_critical):
        self.x, self.y, self.classes = np.asarray(x, dtype=np.float64), list(map(int, y)), classes
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self.beta, self.p_critical = beta, p_critical
        self.w = np.zeros((classes, self.x.shape[1]))
        self.b = np.zeros(classes)
        self.velocity = None

    def probabilities(self, i: int) -> list[float]:
        scores = [
            sum(self.w[c][j] * self.x[i][j] for j in range(self.x.shape[1])) + self.b[c]
            for c in range(self.classes)
        ]
        top = max(scores)
        odds = [math.exp(s - top) for s in scores]
        return [o / sum(odds) for o in odds]

    def step(self, batch: list[int], use_u: bool) -> float:
        grad_w, grad_b, loss = np.zeros_like(self.w), np.zeros_like(self.b), 0.0
        for i in batch:
            p = self.probabilities(i)
            u = p[self.y[i]] ** (1 / self.beta) if use_u else 1.0
            loss += u * -math.log(p[self.y[i]]) / len(batch)
            for c in range(self.classes):
                error = u * (p[c] - (1.0 if c == self.y[i] else 0.0)) / len(batch)
                grad_b[c] += error
                for j in range(self.x.shape[1]):
                    grad_w[c][j] += error * self.x[i][j]
        grad_w += self.decay * self.w
        grad_b += self.decay * self.b
        if self.velocity is None:
            self.velocity = [grad_w, grad_b]
        else:
            self.velocity = [
                self.momentum * v + g for v, g in zip(self.velocity, (grad_w, grad_b), strict=True)
            ]
        self.w = self.w - self.lr * self.velocity[0]
        self.b = self.b - self.lr * self.velocity[1]
        return loss

    def rank(self, epochs, batch, generator, draws="full", use_u=True, use_v=True):
        """Rounds, buckets and u at selection; random draws come from `generator`."""
        n = len(self.y)
        v, bucket, u_at = [1] * n, [-1] * n, [0.0] * n
        rounds = []
        for t in range(epochs):
            pool = [i for i in range(n) if v[i] == 1] if use_v else list(range(n))
            losses = [self.step(b, use_u) for b in _batches(pool, n, batch, generator, draws)]
            for i in range(n):
                if v[i] == 0:
                    continue
                p = self.probabilities(i)[self.y[i]]
                u_at[i] = p ** (1 / self.beta)
                if p > self.p_critical:
                    v[i], bucket[i] = 0, t
            rounds.append(
                Round(self.w.copy(), self.b.copy(), np.array(v) == 0, float(np.mean(losses)))
            )
            if not any(v):
                break
        left = [len(rounds) if b < 0 else b for b in bucket]
        return rounds, np.array(left), np.array(u_at)


def _batches(pool, n, batch, generator, draws):
    if draws == "full":
        steps = math.ceil(n / batch)
        picks = torch.randint(len(pool), (steps, batch), generator=generator).tolist()
        return [[pool[k] for k in row] for row in picks]
    order = [pool[k] for k in torch.randperm(len(pool), generator=generator).tolist()]
    out = [order[start : start + batch] for start in range(0, len(order), batch)]
    k = 0
    while len(out[-1]) < batch:
        out[-1] = [*out[-1], order[k % len(order)]]
        k += 1
    return out


def lambda_of(p_critical: float, beta: float) -> float:
    """The lambda whose selection threshold is `p_critical`: -p^(1/beta)·ln p."""
    return -math.pow(p_critical, 1.0 / beta) * math.log(p_critical)


def lower_root_of(lam: float, beta: float) -> float:
    """Lower root of -p^(1/beta)·ln p = lambda: exp(beta·W-1(-lambda/beta))."""
    if lam == 0.0:
        return 0.0
    p_critical_of(lam, beta)
    found = float(lambertw(-lam / beta, k=-1).real)
    return math.exp(beta * (-1.0 if math.isnan(found) else found))
