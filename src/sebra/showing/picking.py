"""Which samples a report shows: few enough for one file, enough to see the shortcut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sebra.samples.table import IntArray
from sebra.showing.ranked import FOLLOWS, Ranked

END = 12  # samples from each end of a class
CONTRAST = 12  # samples on each side of a discovered bias, per class
MOST_CLASSES = 120  # with a gallery of their own
MOST_CONTRAST_CLASSES = 12
MOST_SUSPECTS = 48
MOST_RANGE = 1200  # samples behind all sliders together
MOST_RANGE_PER_CLASS = 96
SUSPECT = 0.5  # noise from which a sample is called suspect


@dataclass(frozen=True)
class Contrast:
    """One bias in one class: the samples that follow it most and least."""

    label: int
    follows: IntArray
    breaks: IntArray


@dataclass(frozen=True)
class Picked:
    """Rows of the table per part of the page, in the order they are shown."""

    classes: list[int]
    most: dict[int, IntArray]
    least: dict[int, IntArray]
    spread: dict[int, IntArray]
    contrasts: dict[str, list[Contrast]] = field(default_factory=dict)
    suspects: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def by_importance(self) -> list[int]:
        """Every picked row once; what must be seen comes first, should space run out."""
        spread = (row for c in self.classes for row in self.spread[c].tolist())
        return list(
            dict.fromkeys([*self._ends(), *self._sides(), *self.suspects.tolist(), *spread])
        )

    def most_telling(self) -> list[int]:
        """Rows to look at closely, both sides of the patterns first; one may come twice."""
        return [*self._sides(), *self.suspects.tolist(), *self._ends()]

    def _ends(self) -> Iterator[int]:
        for c in self.classes:
            yield from self.most[c].tolist()
            yield from self.least[c].tolist()

    def _sides(self) -> Iterator[int]:
        for contrasts in self.contrasts.values():
            for contrast in contrasts:
                yield from contrast.follows.tolist()
                yield from contrast.breaks.tolist()


def pick(ranked: Ranked) -> Picked:
    """Both ends and an even spread of every class, both sides of every bias, the suspects."""
    sizes = np.array([len(order) for order in ranked.orders])
    largest = np.argsort(-sizes, kind="stable")[:MOST_CLASSES]
    classes = [int(c) for c in np.sort(largest) if sizes[c]]
    each = min(MOST_RANGE_PER_CLASS, MOST_RANGE // max(1, len(classes)))
    return Picked(
        classes=classes,
        most={c: _ends(ranked.orders[c])[0] for c in classes},
        least={c: _ends(ranked.orders[c])[1] for c in classes},
        spread={c: _spread(ranked.orders[c], each) for c in classes},
        contrasts={
            name: [_contrast(ranked, name, c) for c in classes[:MOST_CONTRAST_CLASSES]]
            for name in ranked.stages
        },
        suspects=_suspects(ranked),
    )


def _ends(order: IntArray) -> tuple[IntArray, IntArray]:
    """The first and the last of a class, both most spurious first; a small class is halved."""
    k = min(END, (len(order) + 1) // 2)
    return order[:k], order[max(k, len(order) - END) :]


def _spread(order: IntArray, n: int) -> IntArray:
    """`n` samples evenly along the rank, both ends included."""
    if n < 2 or len(order) == 0:
        return order[:0]
    if len(order) <= n:
        return order
    return order[np.linspace(0, len(order) - 1, n).round().astype(np.int64)]


def _contrast(ranked: Ranked, stage: str, label: int) -> Contrast:
    order = ranked.orders[label]
    value = ranked.stages[stage][order]
    by_value = np.lexsort((ranked.rank[order], -value))
    follow = int((value > FOLLOWS).sum())
    # Both sides start with their clearest sample.
    sides = by_value[:follow][:CONTRAST], by_value[follow:][::-1][:CONTRAST]
    return Contrast(label, order[sides[0]], order[sides[1]])


def _suspects(ranked: Ranked) -> IntArray:
    if ranked.noise is None:
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(-ranked.noise, kind="stable")[:MOST_SUSPECTS]
    return order[ranked.noise[order] >= SUSPECT].astype(np.int64)
