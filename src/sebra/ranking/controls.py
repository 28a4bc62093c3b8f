"""Controls: what a ranker does with a mark that is known to be there, and with none.

Whether a ranking can be believed depends on the data: how many samples, how hard the classes are,
what the features show. So it is tried on the data itself, on copies of the features.

Positive: a mark is put on `SHARE` of one class and on 1 - `SHARE` of the others. It is a shift of
the features in a random direction, so large that a linear model sees in `SEEN` of new samples
whether they have it. It is found where the samples of that class that lack it come out last: by a
stage of the ranker, or, where it names none, by its order; `area` is how well they are told apart.
Negative: features are drawn anew, around the mean of each class with the spread of all of them.
Then every class is one cloud, as near to the others as it was; whatever stage stands is a false
alarm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.errors import NumericalError
from sebra.loading.inputs import Inputs
from sebra.ranking.noise import FEWEST_SAMPLES, MOST_FITTED
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Blind, Ranker, RankResult
from sebra.samples.table import FeatureArray

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Make = Callable[[], Ranker[Any]]

SHARE = 0.95  # of one class carries the mark, and of the others lacks it
SEEN = 0.99  # of new samples a linear model tells rightly whether they carry it: mild, not faint
FOUND = 0.9  # area from which a mark counts as found
TRIALS = 20  # of each kind at most: one false alarm in twenty can be seen
_BLOCK = 8192


@dataclass(frozen=True)
class Controls:
    """areas: of every positive trial. claims: of every negative trial, whether a stage stood.

    A ranker that names no stages has no claims.
    """

    areas: tuple[float, ...]
    claims: tuple[bool, ...]

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
        n = len(self.areas)
        out = [
            f"a mark on {SHARE:.0%} of one class would have been found in {self.found} of "
            f"{n} {_trials(n)}"
        ]
        if self.claims:
            n, many = len(self.claims), sum(self.claims)
            said = "none was" if not many else "one was" if many == 1 else f"{many} were"
            out.append(f"in {n} {_trials(n)} without any pattern {said} claimed")
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


def _trials(n: int) -> str:
    return "trial" if n == 1 else "trials"


def run_controls(
    task: Task,
    make: Make,
    seconds: float,
    negative: bool = False,
    most: int = TRIALS,
) -> Controls | None:
    """Tries a ranker on copies of a task over features, for about so many seconds.

    negative: whether there are negative trials, for rankers that name patterns. most: trials of
    each kind; one is always made. None comes back where there are too few samples or classes.
    """
    started = time.monotonic()
    if len(task) < FEWEST_SAMPLES or len(np.unique(task.targets.cpu().numpy())) < 2:
        return None
    bench = _Bench(task)
    areas: list[float] = []
    claims: list[bool] = []
    for k in range(most):  # in turn, so that both are tried alike when time is short
        if _in_time(started, seconds, k):
            areas.append(bench.positive(make(), k))
        if negative and _in_time(started, seconds, k):
            claims.append(bench.negative(make(), k))
    return Controls(tuple(areas), tuple(claims))


def _in_time(started: float, seconds: float, rounds: int) -> bool:
    """Whether another trial would end in time, by what those of earlier rounds took."""
    passed = time.monotonic() - started
    return rounds == 0 or passed * (1 + 0.5 / rounds) <= seconds


class _Bench:
    """Copies of a task's features, with a mark or as one cloud a class."""

    def __init__(self, task: Task) -> None:
        rows = np.sort(np.random.default_rng(task.seed).permutation(len(task))[:MOST_FITTED])
        where = torch.from_numpy(rows).to(task.device)
        self.task = task.subset(where)
        self.labels = self.task.targets.cpu().numpy().astype(np.int64)
        every = torch.arange(len(where), device=task.device)
        self.x = torch.cat([self.task.seen(p) for p in torch.split(every, _BLOCK)]).cpu()
        self.std, mean = torch.std_mean(self.x, dim=0, correction=0)
        self.shown = (self.x - mean) / self.std.clamp_min(1e-6)

    def positive(self, ranker: Ranker[Any], k: int) -> float:
        """How well a mark is told, as an area under the curve."""
        rng = np.random.default_rng([self.task.seed, 1, k])
        codes = np.unique(self.labels)
        own = self.labels == codes[(self.task.seed + k) % len(codes)]
        carries = np.zeros(len(own), dtype=bool)
        for side, share in ((own, SHARE), (~own, 1 - SHARE)):
            members = rng.permutation(np.flatnonzero(side))
            carries[members[: round(share * len(members))]] = True
        columns = [torch.arange(self.task.inputs.shape[0])]
        if self.task.views:  # a mark is loud in one of them
            columns.append(
                torch.tensor(self.task.views[rng.integers(len(self.task.views))].columns)
            )
        shift = torch.zeros(self.x.shape[1])
        for some in columns:
            shift[some] = self._direction(self.shown[:, some], rng) * self.std[some].clamp_min(1e-6)
        marked = self.x + torch.from_numpy(carries)[:, None] * shift
        result = _ranked(ranker, self._over(marked))
        if ranker.names_patterns and result is not None and not result.stages:
            return 0.5
        return 0.5 if result is None else _area(result, carries, own, self.labels)

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
    def _direction(shown: Tensor, rng: np.random.Generator) -> Tensor:
        """A combination of the ways in which samples differ, as long as `SEEN` asks for."""
        n, d = shown.shape
        shown = shown / d**0.5
        weights = torch.from_numpy(rng.standard_normal(n)).float() / n**0.5
        v = weights @ shown
        spread = shown.T @ shown / n
        # The linear model that tells it best, no surer of any direction than of the mean one.
        head = torch.linalg.solve(spread + torch.eye(d) / d, v)
        reach = float((head @ spread @ head).sqrt() / (head @ v).clamp_min(1e-12))
        out: Tensor = v * (2 * float(ndtri(SEEN)) * reach * d**0.5)
        return out

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


def _area(result: RankResult, carries: Flags, own: Flags, labels: Ints) -> float:
    """How well those of the marked class that carry the mark are told from those that do not.

    By the stage that does it best; by the order where the ranker names no stages.
    """
    order = -ranks_within_classes(result.bucket, result.score, labels)
    columns = list(result.stages.values()) or [order]
    yes = carries[own]
    from scipy.stats import rankdata  # takes a second to load

    with_it, without = int(yes.sum()), int((~yes).sum())
    lowest = with_it * (with_it + 1) / 2
    sums = [float(rankdata(column[own])[yes].sum()) - lowest for column in columns]
    return max(sums) / (with_it * without) if with_it and without else 0.5
