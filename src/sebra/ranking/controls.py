"""Controls: what a ranker does with a mark that is known to be there, and with none.

Whether a ranking can be believed depends on the data, so it is tried on copies of its features.

Positive: a mark is put on `SHARE` of one class and on nobody else; in every other trial each class
has one, and 1 - `SHARE` of it that of another (of two classes one has the mark, the other none). It
is a shift in a random direction, told by a linear model of `SEEN` of new samples. It is found where
those that break it come out last in their class, by a stage or an order: `area`.
Negative: features are drawn anew, around the mean of each class with the spread of all of them: one
cloud a class, as near to the others as it was. Whatever stage stands is a false alarm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.errors import NumericalError
from sebra.loading.inputs import Inputs
from sebra.ranking.balance import Flags, Ints
from sebra.ranking.noise import FEWEST_SAMPLES, MOST_FITTED
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Blind, Ranker, RankResult
from sebra.samples.table import FeatureArray

Make = Callable[[], Ranker[Any]]

SHARE = 0.95  # of a class carries its mark
SEEN = 0.99  # of new samples a linear model tells rightly whether they carry it: mild, not faint
FOUND = 0.9  # area from which a mark counts as found
TRIALS = 20  # of each kind at most: one false alarm in twenty can be seen
_BLOCK = 8192
_HALVINGS = 12  # until the length of a mark is known


@dataclass(frozen=True)
class Controls:
    """one, each: areas of positive trials with a mark of one class, and with one of each class.

    claims: of every negative trial, whether a stage stood; a ranker that names none has no claims.
    """

    one: tuple[float, ...]
    claims: tuple[bool, ...]
    each: tuple[float, ...] = ()

    @property
    def areas(self) -> tuple[float, ...]:
        return self.one + self.each

    @property
    def found(self) -> int:
        """How many marks were found."""
        return sum(area >= FOUND for area in self.areas)

    @property
    def trust(self) -> float:
        """0 to 1: what is kept of a mark (Somers' D), less for each false alarm."""
        kept = float(np.mean([max(0.0, 2 * area - 1) for area in self.areas]))
        return kept * (1 - float(np.mean(self.claims))) if self.claims else kept

    def sentences(self) -> list[str]:
        """What the trials showed, in one sentence each."""
        one = _hits(self.one)
        out = [f"a plain mark on {SHARE:.0%} of one class would have been found in {one}"]
        if self.each:
            out = [f"{out[0]}, and plain marks on {SHARE:.0%} of each class in {_hits(self.each)}"]
        if self.claims:
            many = sum(self.claims)
            said = "none was" if not many else "one was" if many == 1 else f"{many} were"
            out.append(f"in {_trials(self.claims)} without any pattern {said} claimed")
        return out

    def to_dict(self) -> dict[str, Any]:
        return {
            "found": self.found,
            "positive_trials": len(self.areas),
            "area": float(np.mean(self.areas)),
            "claimed": sum(self.claims),
            "negative_trials": len(self.claims),
            "said": self.sentences(),
        }


def _trials(of: tuple[float, ...]) -> str:
    return f"{len(of)} trial{'' if len(of) == 1 else 's'}"


def _hits(areas: tuple[float, ...]) -> str:
    return f"{sum(a >= FOUND for a in areas)} of {_trials(areas)}"


def run_controls(
    task: Task, make: Make, seconds: float, negative: bool = False, most: int = TRIALS
) -> Controls | None:
    """Tries a ranker on copies of a task over features, for about so many seconds.

    negative: whether there are negative trials, for rankers that name patterns. most: trials of
    each kind; one is always made. None comes back where there are too few samples or classes.
    """
    end = time.monotonic() + seconds
    if len(task) < FEWEST_SAMPLES or len(np.unique(task.targets.cpu().numpy())) < 2:
        return None
    bench = _Bench(task)
    areas: dict[bool, list[float]] = {False: [], True: []}
    claims: list[bool] = []
    longest = 0.0
    for k in range(most):
        began, each = time.monotonic(), k % 2 == 1
        if k and began + longest > end:  # another round would not end in time
            break
        areas[each].append(bench.positive(make(), k, each))
        if negative:
            claims.append(bench.negative(make(), k))
        longest = max(longest, time.monotonic() - began)
    return Controls(tuple(areas[False]), tuple(claims), tuple(areas[True]))


class _Bench:
    """Copies of a task's features, with a mark or as one cloud a class."""

    def __init__(self, task: Task) -> None:
        rows = np.sort(np.random.default_rng(task.seed).permutation(len(task))[:MOST_FITTED])
        where = torch.from_numpy(rows).to(task.device)
        self.task = task.subset(where)
        self.labels = self.task.targets.cpu().numpy().astype(np.int64)
        self.codes, self.of = np.unique(self.labels, return_inverse=True)
        every = torch.arange(len(where), device=task.device)
        self.x = torch.cat([self.task.seen(p) for p in torch.split(every, _BLOCK)]).cpu()
        self.std, mean = torch.std_mean(self.x, dim=0, correction=0)
        self.shown = (self.x - mean) / self.std.clamp_min(1e-6)

    def positive(self, ranker: Ranker[Any], k: int, each: bool) -> float:
        """How well a mark of one class, or of each, is told, as an area under the curve."""
        rng, of, many = np.random.default_rng([self.task.seed, 1, k]), self.of, len(self.codes)
        own = of == (self.task.seed + (k + 1) // 2) % many
        fits = of if each and many > 2 else np.where(own, 0, -1)  # the mark of its class, -1: none
        carries = fits.copy()
        for c in range(many):
            members = rng.permutation(np.flatnonzero(of == c))
            breaks = members[: round((1 - SHARE) * len(members))]
            other = (c + rng.integers(1, many, len(breaks))) % many
            carries[breaks] = -1 if not each else other if many > 2 else -1 - fits[breaks]
        columns = [torch.arange(self.task.inputs.shape[0])]
        if self.task.views:  # a mark is loud in one of them
            view = self.task.views[rng.integers(len(self.task.views))]
            columns.append(torch.tensor(view.columns))
        shifts = torch.zeros(fits.max() + 2, self.x.shape[1])  # the last one is none
        for some in columns:
            ways = self._directions(self.shown[:, some], len(shifts) - 1, rng)
            shifts[:-1, some] = ways * self.std[some].clamp_min(1e-6)
        marked = self.x + shifts[torch.from_numpy(carries)]
        result = _ranked(ranker, self._over(marked))
        if ranker.names_patterns and result is not None and not result.stages:
            return 0.5
        return 0.5 if result is None else _area(result, carries == fits, fits >= 0, self.labels)

    def negative(self, ranker: Ranker[Any], k: int) -> bool:
        """Whether a stage stands where every class is one cloud."""
        centre, factor = self._clouds
        rng = np.random.default_rng([self.task.seed, 2, k])
        noise = torch.from_numpy(rng.standard_normal((len(self.x), len(factor)), np.float32))
        result = _ranked(ranker, self._over(centre + noise @ factor))
        return result is not None and bool(result.stages)

    @cached_property
    def _clouds(self) -> tuple[Tensor, Tensor]:
        """The mean of every sample's class, and what normal numbers are multiplied by to spread."""
        y = torch.from_numpy(self.labels)
        sums = torch.zeros(int(y.max()) + 1, self.x.shape[1]).index_add_(0, y, self.x)
        centre = (sums / torch.bincount(y).clamp_min(1)[:, None])[y]
        rest = (self.x - centre) / len(y) ** 0.5
        if rest.shape[1] >= len(rest):
            return centre, rest
        values, axes = torch.linalg.eigh(rest.double().T @ rest.double())
        return centre, (axes * values.clamp_min(0).sqrt()).T.float()

    @staticmethod
    def _directions(shown: Tensor, many: int, rng: np.random.Generator) -> Tensor:
        """Combinations of the ways in which samples differ, as long as `SEEN` asks for.

        A ridge regression, no surer of any direction than of the mean one, is told which half of
        the samples carries the first, and judges each by the others, in closed form.
        """
        n, d = shown.shape
        x = shown / d**0.5
        ways: Tensor = torch.from_numpy(rng.standard_normal((many, n))).float() @ x / n**0.5
        half = torch.from_numpy(rng.permutation(n) % 2 - 0.5).float()
        root = torch.linalg.cholesky(x.T @ x / n + torch.eye(d) / d)
        share = torch.linalg.solve_triangular(root, x.T, upper=False).square().sum(0) / n
        both = torch.stack([x.T @ half / n, ways[0]], 1)
        known = torch.cholesky_solve(both, root)
        told, inner = x @ known, both.T @ known

        def missing(power: float) -> float:
            length = float(np.exp(power))
            added = torch.tensor([[0, length], [length, length**2 / 4]])
            head = torch.linalg.solve(torch.eye(2) + added @ inner, torch.tensor([1, length / 4]))
            says = told @ head + length * half * (inner[1] @ head)
            says = (says - share * half) / (1 - share)
            yes, no = says[half > 0], says[half < 0]
            apart = (yes.mean() - no.mean()) / ((yes.var() + no.var()) / 2).sqrt()
            return 2 * float(ndtri(SEEN)) - float(apart)

        low, high = -9.0, 9.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if missing(middle) > 0 else (low, middle)
        return ways.mul(float(np.exp(high)) * d**0.5)

    def _over(self, x: Tensor) -> Task:
        rows = np.arange(len(x))
        features, figures = x.tensor_split([self.task.inputs.shape[0]], dim=1)
        inputs = Inputs(FeatureArray(features.contiguous().numpy(), rows), self.task.device)
        kept = None if self.task.figures is None else figures.to(self.task.device)
        where = torch.from_numpy(rows).to(self.task.device)
        return replace(self.task, inputs=inputs, rows=where, figures=kept)


def _ranked(ranker: Ranker[Any], task: Task) -> RankResult | None:
    """None where the ranking failed: nothing was found then."""
    try:
        result = ranker.rank(task, Session(), Blind())
    except NumericalError:  # a step that large diverges
        return None
    return None if result.collapsed else result


def _area(result: RankResult, follows: Flags, own: Flags, labels: Ints) -> float:
    """How well those of marked classes that follow their mark are told from those that do not.

    By the stage that does it best; by the order where the ranker names no stages.
    """
    order = -ranks_within_classes(result.bucket, result.score, labels)
    columns = list(result.stages.values()) or [order]
    yes = follows[own]
    from scipy.stats import rankdata  # takes a second to load

    with_it, without = int(yes.sum()), int((~yes).sum())
    lowest = with_it * (with_it + 1) / 2
    sums = [float(rankdata(column[own])[yes].sum()) - lowest for column in columns]
    return max(sums) / (with_it * without) if with_it and without else 0.5
