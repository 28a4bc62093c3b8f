"""Words for a pattern: what tells the samples that follow it from those that break it.

Every kind of thing that can be said is a `Family` of columns. In each class the words are chosen on
some of the samples, and the figure beside them, the area under the curve between both sides, comes
from the others. Below a bar nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.loading.descriptors import BORDER, COLOUR, LIGHT, PLACES, SHARPNESS
from sebra.measuring.ranks import areas

Array = npt.NDArray[Any]

MARK = "mark"
CENTRE, WHOLE = "centre", {COLOUR, LIGHT, SHARPNESS}
LOCAL = {BORDER, *PLACES} - {CENTRE}
FOLLOWS = 0.5
FOLDS = 5
FEWEST = 2  # samples on either side of a class, below which nothing is chosen in it
ENOUGH = 10  # samples on either side, from which a class can be said not to show it
LEAST = 0.75  # area from which a word may be claimed
SURELY = 0.6  # area that the lower end of its interval must reach
SURE = 20  # samples on a side of a class; of more the clearer half speaks for it
RIDGE = 0.3  # of a column's variance, added where columns are weighed together
NEAR = 0.05  # area by which being close to a value must tell more than having more or less
FARTHEST = 10.0  # spreads between both sides; more tells no more
MOST_WORDS = 3


@dataclass(frozen=True)
class Family:
    """Columns that say one kind of thing of every sample.

    names: per column the words for more of it, for less, and perhaps for a value in between, as in
    "age is about {:.3g}". together: whether the columns are weighed together, as figures of one
    view are, or each is a word of its own. known: which samples the values are of; None for all.
    """

    kind: str
    values: Array
    names: Sequence[tuple[str, ...]]
    together: bool = False
    known: Array | None = None


@dataclass(frozen=True)
class Word:
    """What one kind says: how well it alone tells the sides apart, and its words per class."""

    kind: str
    area: float
    phrases: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "area": round(self.area, 3), "phrases": self.phrases}


def clear_sides(follows: Array, labels: Array) -> Array:
    """Which samples are clearly on their side: in each class and side the half farthest from 0.5.

    follows: from 0 to 1, or a truth. At least `SURE` of a side are kept, and all that are as far.
    """
    far = np.abs(follows.astype(np.float64) - FOLLOWS)
    clear = np.zeros(len(far), dtype=bool)
    keys = 2 * labels + (follows > FOLLOWS)
    for key in np.unique(keys):
        rows = np.flatnonzero(keys == key)
        kept = min(len(rows), max(SURE, len(rows) // 2))
        clear[rows] = far[rows] >= np.sort(far[rows])[-kept]
    return clear


def sides_of(follows: Array, labels: Array, c: int) -> tuple[Array, Array]:
    """The samples of a class that clearly follow, and those that clearly break it."""
    rows = np.flatnonzero(clear_sides(follows, labels) & (labels == c))
    side = follows[rows] > FOLLOWS
    return rows[side], rows[~side]


def words_of(
    families: Sequence[Family], follows: Array, labels: Array, classes: Sequence[str]
) -> list[Word]:
    """The words for one pattern, the most telling first; empty where nothing tells enough.

    follows: how far each sample follows it, from 0 to 1; what is near the middle is not asked.
    """
    clear = clear_sides(follows, labels)
    follows = follows > FOLLOWS
    members = [np.flatnonzero(clear & (labels == c)) for c in range(len(classes))]
    found = []
    for family in families:
        of = [r if family.known is None else r[family.known[r]] for r in members]
        parts = {c: _held_out(family, r, follows) for c, r in enumerate(of)
                 if _smaller(follows, r) >= FEWEST}  # fmt: skip
        parts = {c: part for c, part in parts.items() if part.pairs}
        # Classes that could say it and do not are left out; the others must be surer then.
        told = [c for c, part in parts.items()
                if part.area >= SURELY or _smaller(follows, of[c]) < ENOUGH]  # fmt: skip
        if not told:
            continue
        pairs = [parts[c].pairs for c in told]
        each = [(parts[c].area, parts[c].apart) for c in told]
        area, apart = np.average(each, axis=0, weights=pairs).tolist()
        error = _error(area, follows, np.concatenate([of[c] for c in told]))
        if area >= LEAST and area - (1.64 if len(told) == len(parts) else 3.0) * error >= SURELY:
            phrases = {classes[c]: parts[c].phrase for c in told}
            found.append((apart, Word(family.kind, area, phrases)))
    found.sort(key=lambda pair: -pair[0])
    words = [word for _, word in found]
    kinds = {word.kind for word in words}
    if CENTRE not in kinds and kinds & LOCAL:  # what the whole picture shows comes from there
        words.sort(key=lambda word: word.kind in WHOLE)
    enough = max((word.area for word in words), default=0.0) - NEAR
    words.sort(key=lambda word: word.kind != MARK or word.area < enough)  # more than its colour
    return words[:MOST_WORDS]


def _smaller(follows: Array, rows: Array) -> int:
    return int(min(follows[rows].sum(), (~follows[rows]).sum()))


@dataclass(frozen=True)
class _Held:
    """One family in one class, by held-out samples: area, over how many pairs, and the words.

    apart: the means of both sides, in spreads; tells kinds apart whose area is 1.
    """

    area: float
    pairs: int
    apart: float
    phrase: str


def _held_out(family: Family, rows: Array, follows: Array) -> _Held:
    side = follows[rows]
    values = np.asarray(family.values[rows], dtype=np.float64)
    fold = np.empty(len(rows), dtype=np.int64)
    for one in (True, False):  # both sides in every fold, in an order that means nothing
        members = np.flatnonzero(side == one)
        fold[np.random.default_rng(0).permutation(members)] = np.arange(len(members)) % FOLDS
    sums = np.zeros(3)
    for k in range(FOLDS):
        rest, held = fold != k, fold == k
        count = int(side[held].sum() * (~side[held]).sum())
        if count:
            score = _score(family, values[rest], side[rest], values[held])
            sums += count * np.array(
                [1.0, areas(score[:, None], side[held])[0], _apart(score, side[held])]
            )
    _, phrase = _best(family, values, side)
    area, apart = sums[1:] / max(sums[0], 1.0)
    return _Held(float(area), int(sums[0]), float(apart), phrase)


def _score(family: Family, values: Array, side: Array, held: Array) -> Array:
    """How far held-out samples follow: by Fisher's direction with a ridge, or the best column."""
    if not family.together:
        best, _ = _best(family, values, side)
        return best(held)
    middle, scale = values.mean(axis=0), np.maximum(values.std(axis=0), 1e-9)
    z = (values - middle) / scale
    means = [z[side].mean(axis=0), z[~side].mean(axis=0)]
    within = z - np.where(side[:, None], *means)
    spread = within.T @ within / len(z) + RIDGE * np.eye(z.shape[1])
    return np.asarray((held - middle) / scale @ np.linalg.solve(spread, means[0] - means[1]))


def _best(family: Family, values: Array, side: Array) -> tuple[Callable[[Array], Array], str]:
    """The column that tells both sides apart best, as a score, and its words."""
    ahead = areas(values, side) - 0.5
    best = int(np.abs(ahead).argmax())
    # Of things, what is there says more than what is missing.
    if not family.together and ahead.max() > abs(ahead[best]) - NEAR:
        best = int(ahead.argmax())
    names = family.names[best]
    if len(names) > 2:  # a value in the middle may be what they share
        usual = np.median(values[side], axis=0)
        near = areas(-np.abs(values - usual), side) - 0.5
        fixed = (values[side] == usual).mean(axis=0) > 0.5  # most hold that very value
        close = max(range(len(near)), key=lambda j: (round(float(near[j]), 9), fixed[j]))
        if near[close] > abs(ahead[best]) + (-NEAR if fixed[close] else NEAR):
            value = float(usual[close])
            phrase = family.names[close][2].format(value)
            return lambda held: -np.abs(held[:, close] - value), phrase
    sign = 1.0 if ahead[best] > 0 else -1.0
    return lambda held: sign * held[:, best], names[0 if sign > 0 else 1]


def _apart(score: Array, side: Array) -> float:
    spread = np.sqrt((score[side].var() + score[~side].var()) / 2) + 1e-9 * np.abs(score).max()
    return min(float((score[side].mean() - score[~side].mean()) / max(spread, 1e-12)), FARTHEST)


def _error(area: float, follows: Array, rows: Array) -> float:
    """Standard error of an area (Hanley and McNeil 1982), by the sizes of both sides."""
    n, m = int(follows[rows].sum()), int((~follows[rows]).sum())
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (n - 1) * (one - area**2) + (m - 1) * (two - area**2)
    return float(np.sqrt(max(spread, 0.0) / (n * m)))
