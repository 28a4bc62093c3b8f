"""How far a ranking can be trusted, without any attribute.

The data gives evidence of its own, once per task (`witness_of`): quick held-out heads find the
shortcuts that most samples follow, how certain each of them is, and how reliably they are read:
`reliability` is how far two halves of the data agree on who follows the first. A ranking is heard
against it (`trust_in`): `agreement` is its Somers' D given those shortcuts, expected over how many
of them are real. An order by chance agrees by 0, one that misses the second of two shortcuts by
about a half. A factor and a power, fitted on data sets with known attributes (`trust.json`), turn
both into the Somers' D to be expected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task
from sebra.ranking.balance import contrast_weights, neutral_weights
from sebra.ranking.folds import stratified_folds
from sebra.ranking.noise import untrained_network

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

COEFFICIENTS = Path(__file__).with_name("trust.json")
FIGURES = ("agreement", "reliability")
MOST_ROWS, MOST_PICTURES = 20_000, 4_000
FEWEST_ROWS = 40
_EASY_WIDTH = 512  # up to this width of the features MOST_ROWS cost a few seconds
_FOLDS = 3
_STIFF, _SUPPLE = 1e-2, 3e-3  # penalties of the heads: only the easiest cue, and more than that
_DOUBTFUL, _CERTAIN = 0.55, 0.65  # evidence below and above which a shortcut surely is none or one
_LEAST_CHANCE = 0.25  # of the first: from easy to hard is worth something where nothing is certain
_MOST_SHORTCUTS = 4
_LEAST = 8  # samples of a class that must break a shortcut
_BLOCK = 8192
_HALVINGS = 4  # of the teachers, to see how far two halves agree
_SEED = 7001  # one for all runs: rankings of the same data are heard by the same evidence


@dataclass(frozen=True)
class Trust:
    """value: 0 to 1, the Somers' D to be expected. figures: what it was made from."""

    value: float
    figures: dict[str, float]


class Heads:
    """Ridge regressions onto the classes, judged on samples they have not seen."""

    def __init__(self, x: Tensor, labels: Ints) -> None:
        std, mean = torch.std_mean(x, dim=0, correction=0)
        # Divided by the root of the dimension, so that one penalty suits every width.
        x = (x - mean) / (std.clamp_min(1e-6) * x.shape[1] ** 0.5)
        self.x = torch.cat([x, torch.ones(len(x), 1, device=x.device)], 1)
        shuffle = np.random.default_rng(_SEED).permutation(len(labels))
        self.fold = stratified_folds(labels, _FOLDS, shuffle)

    def __call__(self, wanted: Floats, weights: Floats, penalty: float) -> Floats:
        """Held-out values for every sample, n x k like `wanted`; weights choose who teaches."""
        out = np.zeros(wanted.shape)
        for k in range(_FOLDS):
            teach = np.flatnonzero((self.fold != k) & (weights > 0))
            if len(teach):
                head = self._solve(teach, wanted[teach], weights[teach], penalty)
                judged = np.flatnonzero(self.fold == k)
                out[judged] = (self.x[self._on(judged)] @ head).double().cpu().numpy()
        return out

    def _solve(self, rows: Ints, wanted: Floats, weights: Floats, penalty: float) -> Tensor:
        x = self.x[self._on(rows)]
        share = torch.from_numpy(weights / weights.sum()).float().to(x.device)
        target = torch.from_numpy(wanted).float().to(x.device)
        ridge = torch.full((x.shape[1],), penalty, device=x.device)
        ridge[-1] = 1e-6
        weighted = (x * share[:, None]).T
        head: Tensor = torch.linalg.solve(weighted @ x + torch.diag(ridge), weighted @ target)
        return head

    def _on(self, rows: Ints) -> Tensor:
        return torch.from_numpy(rows).to(self.x.device)


@dataclass(frozen=True)
class Witness:
    """What the data says by itself, about the samples `rows` of a task.

    follows: per shortcut, strongest first, who follows it. chance: how likely each of them is one,
    given the ones before it. reliability: how far halves of the data agree on the first, 0 to 1.
    """

    rows: Ints
    labels: Ints
    follows: tuple[Flags, ...]
    chance: tuple[float, ...]
    reliability: float


def witness_of(task: Task) -> Witness | None:
    """The evidence of a task; None where there is too little of it. Bounded for large tasks."""
    everyone = task.targets.cpu().numpy().astype(np.int64)
    if len(everyone) < FEWEST_ROWS or len(np.unique(everyone)) < 2:
        return None
    x, rows = _features(task)
    labels = everyone[rows]
    heads = Heads(x, labels)
    found, reliability = _shortcuts(heads, labels, task.classes)
    follows, chance = tuple(f for f, _ in found), tuple(c for _, c in found)
    return Witness(rows, labels, follows, chance, reliability)


def _features(task: Task) -> tuple[Tensor, Ints]:
    content = task.inputs.is_image or task.inputs.is_text
    width = _EASY_WIDTH if content else task.inputs.shape[0]
    most = int(np.clip(MOST_ROWS * (_EASY_WIDTH / width) ** 2, MOST_PICTURES, MOST_ROWS))
    most = MOST_PICTURES if content else most
    rng = np.random.default_rng(_SEED)
    # In the order they are stored in: a memory map is read forwards.
    rows = np.sort(rng.permutation(len(task))[:most])
    where = torch.from_numpy(rows).to(task.device)
    if content:
        network = untrained_network(task)
        with evaluating(network):
            return predict(network.embed, task, where, batch=256).float(), rows
    return torch.cat([task.batch(part).float() for part in torch.split(where, _BLOCK)]), rows


def _shortcuts(heads: Heads, labels: Ints, classes: int) -> tuple[list[tuple[Flags, float]], float]:
    """Peels shortcuts as the ranker `peel` does, with heads that have a closed form.

    Where the ranker must decide, here a doubtful shortcut counts in part. Each comes with its
    chance; the second value is the reliability of the first.
    """
    sure = np.ones(len(labels))
    found: list[tuple[Flags, float]] = []
    reliability = 0.0
    while len(found) < _MOST_SHORTCUTS:
        before = np.array([f for f, _ in found], dtype=bool).reshape(-1, len(labels)).T
        weights = neutral_weights(before, labels, sure)
        logits = heads(_signs(labels, classes), weights, _STIFF)
        right = _margins(logits, labels) > 0
        seems = np.where(right, labels, logits.argmax(1))
        apart = contrast_weights(before, right, labels, sure)
        if apart.sum() == 0:
            break
        told = heads(_signs(seems, classes), apart, _SUPPLE)
        follows = _margins(told, labels) > 0
        consistency = float(((told.argmax(1) == seems) * apart).sum() / apart.sum())
        evidence = consistency * float((follows * weights).sum() / weights.sum())
        chance = float(np.clip((evidence - _DOUBTFUL) / (_CERTAIN - _DOUBTFUL), 0, 1))
        chance = chance if found else max(chance, _LEAST_CHANCE)
        broken = np.bincount(labels, ~follows, minlength=classes)
        if (broken >= _LEAST).sum() < 2:  # too few to tell a shortcut from wrong labels
            chance = 0.0 if found else _LEAST_CHANCE
        if chance == 0 or follows.all():
            break
        if not found:
            reliability = _between_halves(heads, _signs(seems, classes), apart, labels)
        found.append((follows, chance))
    return found, reliability


def _between_halves(heads: Heads, wanted: Floats, weights: Floats, labels: Ints) -> float:
    """Somers' D of the order that one half of the data teaches given what the other half teaches.

    1 where both see the same samples follow a shortcut, 0 where they agree by chance.
    """
    rng = np.random.default_rng(_SEED)
    values = []
    for _ in range(_HALVINGS):
        half = rng.permutation(len(labels)) % 2
        told = [heads(wanted, np.where(half == k, weights, 0.0), _SUPPLE) for k in (0, 1)]
        margins = [_margins(t, labels) for t in told]
        for one, other in (margins, margins[::-1]):
            order = np.argsort(np.argsort(-one, kind="stable"))
            values.append(_somers_d(_places(order, labels), (other <= 0).astype(np.int64), labels))
    return float(np.clip(np.mean(values), 0, 1))


def figures_of(witness: Witness, rank: Ints) -> dict[str, float]:
    """What the evidence says about a ranking; `rank` has one entry per sample of the task."""
    place = _places(rank[witness.rows], witness.labels)
    return {
        "agreement": _agreement(witness, place),
        "reliability": witness.reliability,
        "shortcuts": float(np.cumprod(witness.chance).sum()),
    }


def trust_in(witness: Witness | None, rank: Ints) -> Trust | None:
    """How far a ranking can be trusted; None where the data says nothing."""
    if witness is None:
        return None
    figures = figures_of(witness, rank)
    return Trust(combined(figures), figures)


@lru_cache
def coefficients() -> dict[str, Any]:
    """The fitted model that turns figures into trust."""
    found: dict[str, Any] = json.loads(COEFFICIENTS.read_text(encoding="utf-8"))
    return found


def combined(figures: Mapping[str, Any], model: Mapping[str, Any] | None = None) -> float:
    """One number from the figures: rising with each of them, 0 to 1, 0 where one of them is."""
    m = model or coefficients()
    reliability = figures["reliability"] ** m["power"]
    return float(np.clip(m["weight"] * figures["agreement"] * reliability, 0, 1))


def _agreement(witness: Witness, place: Floats) -> float:
    """Somers' D given the shortcuts, expected over how many there are; none of them gives 0."""
    value, pattern, so_far = 0.0, np.zeros(len(place), dtype=np.int64), 1.0
    chances = [*witness.chance, 0.0]
    for k, follows in enumerate(witness.follows):
        pattern = 2 * pattern + ~follows
        so_far *= chances[k]
        value += so_far * (1 - chances[k + 1]) * _somers_d(place, pattern, witness.labels)
    return value


def _somers_d(place: Floats, pattern: Ints, labels: Ints) -> float:
    """Class-wise, of places without ties: pairs of one pattern do not count."""
    values = []
    for c in np.unique(labels):
        here = labels == c
        groups = [place[here & (pattern == p)] for p in np.unique(pattern[here])]
        surplus = pairs = 0
        for k, later in enumerate(groups):
            before = np.sort(np.concatenate([np.empty(0), *groups[:k]]))
            surplus += 2 * int(np.searchsorted(before, later).sum()) - len(before) * len(later)
            pairs += len(before) * len(later)
        if pairs:
            values.append(surplus / pairs)
    return float(np.mean(values)) if values else 0.0


def _places(rank: Ints, labels: Ints) -> Floats:
    """0 to 1 within each class, rising with rank, for the samples heard."""
    place = np.empty(len(rank))
    for c in np.unique(labels):
        here = np.flatnonzero(labels == c)
        place[here[np.argsort(rank[here], kind="stable")]] = (np.arange(len(here)) + 0.5) / len(
            here
        )
    return place


def _signs(labels: Ints, classes: int) -> Floats:
    out = np.full((len(labels), classes), -1.0)
    out[np.arange(len(labels)), labels] = 1.0
    return out


def _margins(logits: Floats, labels: Ints) -> Floats:
    """The value of the label less the largest of the others."""
    rows = np.arange(len(labels))
    others = logits.copy()
    others[rows, labels] = -np.inf
    out: Floats = logits[rows, labels] - others.max(1)
    return out
