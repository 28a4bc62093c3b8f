"""Is there a pattern, or are there only hard and mislabelled samples?

A pattern is a property that most samples of a class have; those without it look like other classes.
So on the line from the class to the others, along which held-out models see the property, a class
with a pattern has a second, smaller cloud at the place of the others. Without one, a class is one
cloud, as thick on the side towards the others as on the far side, apart from samples that belong to
another class and carry a wrong label.

The test holds both against the samples. Each counts by how far it lies from the median of its class
(to the third power, so that the place of the others counts and the middle does not; none counts
more than one that lies there): for a pattern on the side of the others, against it on the far side.
And it counts against a pattern if it is, by everything else that tells the two classes apart, more
like the class it seems to be than the median member of that class: of mislabelled samples half are,
of samples that break a pattern few. Under "one cloud and wrong labels" the sum is zero or less, its
spread is known, and the chance to see as much or more is the chance of a false alarm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from sebra.ranking.balance import Flags, Floats, Ints

_POWER = 3  # the smallest odd one above the first, which the median takes out
_AROUND = 0.1  # share of a class on each side of its median that says how dense it is there


@dataclass(frozen=True)
class Evidence:
    """Per class the sum of what its samples count, and its variance; 0 where nothing was tested."""

    sums: Floats
    spreads: Floats

    @property
    def chance(self) -> float:
        """Of a false alarm: of two looks, at all classes together and at the best of them."""
        alone, together = self._alone(), self._together(self.spreads > 0)
        return min(1.0, 2 * min(together, float(alone.min())))

    def covers(self, most: float) -> Flags:
        """The classes with the pattern, where a false alarm may have the chance `most`.

        Those that show it on their own, and the others where they do so together.
        """
        alone: Flags = 2 * self._alone() <= most
        others = (self.spreads > 0) & ~alone
        if 2 * self._together(others) <= most:
            return alone | others
        return alone

    def _alone(self) -> Floats:
        """The chance of each class, counted as often as there are classes to choose from."""
        tested = self.spreads > 0
        chance = ndtr(-self.sums / np.sqrt(np.where(tested, self.spreads, 1.0)))
        return np.where(tested, np.minimum(1.0, tested.sum() * chance), 1.0)

    def _together(self, some: Flags) -> float:
        total = float(self.spreads[some].sum())
        return float(ndtr(-self.sums[some].sum() / total**0.5)) if total else 1.0


def evidence_of(
    told: Floats, rest: Floats, labels: Ints, suspects: Flags, heard: Flags
) -> Evidence:
    """The evidence for a candidate.

    told, rest: held-out logits, n x classes, of models that see the candidate and of models that
    see the class by everything else. suspects: samples that may break the candidate; a class
    without any has no evidence. heard: samples that are one cloud of their class as far as is
    known, since they follow the patterns found so far.
    """
    sums, spreads = np.zeros(told.shape[1]), np.zeros(told.shape[1])
    second = _likeliest_other(told, labels)
    for c in np.unique(labels[suspects & heard]):
        here = np.flatnonzero((labels == c) & heard)
        place = _places(told[:, c], here, np.flatnonzero(labels != c))
        if place is not None:
            sign = _own_or_wrong(place, rest, labels, second, here)
            sums[c], spreads[c] = _sum_and_spread(place[here], sign)
    return Evidence(sums, spreads)


def _places(values: Floats, own: Ints, others_: Ints) -> Floats | None:
    """0 at the median of the class, 1 at that of the others; None where they are not apart."""
    middle, others = np.median(values[own]), np.median(values[others_])
    return (middle - values) / (middle - others) if middle > others else None


def _counted(place: Floats) -> Floats:
    return np.clip(place, -1, 1) ** _POWER


def _own_or_wrong(near: Floats, rest: Floats, labels: Ints, second: Ints, here: Ints) -> Floats:
    """-1 for samples of a class that look more like their second class than its median member."""
    own = labels[here[0]]
    sign = np.ones(len(here))
    for other in np.unique(second[here]):
        members = np.flatnonzero(labels == other)
        weights = np.maximum(_counted(near[members]), 0)
        if weights.sum() > 0:
            by_rest = rest[:, own] - rest[:, other]
            median = _median(by_rest[members], weights)
            some = second[here] == other
            sign[some] = np.where(by_rest[here[some]] > median, 1.0, -1.0)
    return sign


def _sum_and_spread(place: Floats, sign: Floats) -> tuple[float, float]:
    """The sum over a class and its variance, that of the estimated median included."""
    low, high = np.quantile(place, [0.5 - _AROUND, 0.5 + _AROUND])
    if high <= low:
        return 0.0, 0.0

    def counts(shift: float) -> Floats:
        counted = _counted(place - shift)
        return np.where(counted > 0, counted * sign, counted)

    each, step = counts(0.0), (high - low) / 2
    slope = (counts(step).sum() - counts(-step).sum()) / (2 * step)
    density = 2 * _AROUND / (high - low)
    influence = each - each.mean() + slope / (2 * density * len(place)) * np.sign(place)
    # One sample more or less is always possible, however alike the others are.
    return float(each.sum()), max(1.0, float(np.square(influence).sum()))


def _likeliest_other(logits: Floats, labels: Ints) -> Ints:
    others = logits.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    best: Ints = others.argmax(1)
    return best


def _median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values, kind="stable")
    so_far = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(so_far, so_far[-1] / 2)]])
