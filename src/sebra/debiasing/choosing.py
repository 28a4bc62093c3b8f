"""Which of several models to keep: best where patterns are broken, within a budget.

Candidates are judged by samples that they were not fitted to. What debiasing costs is the ordinary
accuracy; what it gains shows where samples break what most of their class share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

Floats = npt.NDArray[np.float64]
_LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Figures:
    """Of one candidate, in percent: ordinary accuracy, mean over groups, worst group."""

    accuracy: float
    balanced: float
    worst: float


class Jury:
    """Held-out samples that candidates are judged by.

    groups: class and pattern of every sample, as a number. ordinary: how much each sample counts in
    the ordinary accuracy, where the samples are not drawn like the training set. sure: how much
    each counts within its group.
    """

    def __init__(
        self,
        y: Tensor,
        groups: Tensor,
        ordinary: Tensor | None = None,
        sure: Tensor | None = None,
    ) -> None:
        self.y = y.cpu()
        self.alike = even(groups.cpu(), 1.0, None if sure is None else sure.cpu())
        self.groups = np.unique(groups.cpu().numpy(), return_inverse=True)[1]
        self.sizes = np.bincount(self.groups).astype(float)
        share = torch.ones(len(self.y)) if ordinary is None else ordinary.cpu()
        self.share: Floats = (share.double() / share.double().sum()).numpy()

    def right(self, logits: Tensor) -> Floats:
        """One for every sample that is told rightly."""
        out: Floats = (logits.argmax(1).cpu() == self.y).numpy().astype(float)
        return out

    def figures(self, right: Floats) -> Figures:
        hits = np.bincount(self.groups, right)
        accuracy = float((self.share * right).sum())
        # As if each group had one more hit and one more miss: three of three are not certainty.
        worst = float(((hits + 1) / (self.sizes + 2)).min())
        return Figures(100 * accuracy, 100 * float((hits / self.sizes).mean()), 100 * worst)

    def cost(self, plain: Floats, other: Floats) -> float:
        """Points of ordinary accuracy that `other` loses."""
        return 100 * float((self.share * (plain - other)).sum())

    def surprise(self, logits: Tensor) -> float:
        """How badly calibrated probabilities tell the class where groups count alike.

        Of a few samples that break a pattern this says more than how many are told rightly.
        """
        return calibrated(logits, self.y, self.alike)

    def choose(
        self, plain: Tensor, ways: Sequence[Sequence[Tensor]], budget: float
    ) -> tuple[int, int] | None:
        """Way and place of the candidate to keep, or None for plain training.

        Along each way debiasing grows stronger. The strongest within the budget stands for its way,
        and the one that tells the class best where groups count alike is kept.
        """
        right, least, kept = self.right(plain), self.surprise(plain), None
        for way, candidates in enumerate(ways):
            for place in reversed(range(len(candidates))):
                if self.cost(right, self.right(candidates[place])) > budget:
                    continue
                found = self.surprise(candidates[place])
                if found < least:
                    least, kept = found, (way, place)
                break
        return kept

    def sides(self, logits: Tensor, stages: Tensor) -> list[dict[str, Any]]:
        """Of every pattern: accuracy of the samples that follow it and of those that break it."""
        right = self.right(logits)
        out = []
        for follows in (stages.cpu().numpy() > 0.5).T:
            rows: dict[str, Any] = {}
            for name, side in (("with", follows), ("against", ~follows)):
                hits, n = float(right[side].sum()), int(side.sum())
                rows[name] = {"accuracy": 100 * hits / n if n else None, "n": n}
            out.append(rows)
        return out


def groups_of(stages: Tensor, targets: Tensor, least: int) -> Tensor:
    """Class and pattern of every sample as one number; rare patterns join the next one."""
    from sebra.debiasing.stages import patterns

    pattern = patterns(stages, targets, least)
    return targets * (int(pattern.max()) + 1 if len(pattern) else 1) + pattern


def even(groups: Tensor, balance: float, sure: Tensor | None = None) -> Tensor:
    """Weights under which groups count alike (balance 1), as they are (0), or in between.

    sure: how much each sample counts within its group.
    """
    counts = torch.ones_like(groups, dtype=torch.float32) if sure is None else sure
    size = torch.bincount(groups, counts.double())
    return (counts * size[groups] ** -balance).float()


def how_sure(stages: Tensor) -> Tensor:
    """How much samples count in the group of their pattern: one that breaks it, by how far.

    Those just beyond the threshold are often hard samples that break nothing.
    """
    depth = -torch.logit(stages.float(), eps=_LEAST_SHARE)
    broken = torch.where(stages > 0.5, torch.inf, depth).amin(1)
    return torch.where(broken.isinf(), 1.0, broken.clamp_min(_LEAST_SHARE))


def temperature(logits: Tensor, y: Tensor, weights: Tensor) -> float:
    """What held-out logits are divided by so that they become probabilities (Guo et al., 2017)."""
    from scipy.optimize import minimize_scalar

    def told(log: float) -> float:
        return surprise(logits / np.exp(log), y, weights)

    found = minimize_scalar(told, bounds=(-2.0, 4.0), method="bounded")
    return float(np.exp(found.x))


def calibrated(logits: Tensor, y: Tensor, weights: Tensor) -> float:
    """How badly calibrated probabilities tell the class: the weighted mean of the cross-entropy."""
    return surprise(logits / temperature(logits, y, weights), y, weights)


def surprise(logits: Tensor, y: Tensor, weights: Tensor) -> float:
    """The weighted mean of the cross-entropy."""
    share = (weights / weights.sum()).double().cpu()
    return float((share * _surprises(logits, y)).sum())


def ahead(one: Tensor, other: Tensor, y: Tensor, weights: Tensor) -> float:
    """By how many standard errors calibrated logits tell the class better than others."""
    heats = [temperature(logits, y, weights) for logits in (one, other)]
    gain = _surprises(other / heats[1], y) - _surprises(one / heats[0], y)
    share = (weights / weights.sum()).double().cpu()
    mean = float((share * gain).sum())
    error = float((share**2 * (gain - mean) ** 2).sum().sqrt())
    return mean / error if error > 0 else 0.0


def _surprises(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits.double().cpu(), y.cpu(), reduction="none")
