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

Many features together are spread alike on both sides; a few figures of a narrow view (`views.py`)
are not, so there the null asks less: a class thins out towards the others, and ever faster (its
density is log-concave: normal, exponential, even clouds and all that lie between). Then what lies
before half way and between there and three quarters bounds what may lie beyond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, xlogy

from sebra.ranking.balance import Flags, Floats, Ints

_POWER = 3  # the smallest odd one above the first, which the median takes out
_AROUND = 0.1  # share of a class on each side of its median that says how dense it is there
_HALF_WAY, _BEYOND = 0.5, 0.75  # places where the tail of a cloud is measured and where it is bound
_MOST = 0.75  # of a class has a property that most of it share; by halves nature splits classes
_RATES = np.linspace(0, 1, 501)[1:-1]  # by which a cloud may thin out per quarter of the way


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
        """The classes with a pattern that stands; each is counted in wrongly with chance `most`.

        Those that show it on their own, and the others where they do so together.
        """
        alone: Flags = self._alone() / max(1, (self.spreads > 0).sum()) <= most
        others = (self.spreads > 0) & ~alone
        if self._together(others) <= most:
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
            sign = np.where(_own_or_wrong(place, rest, labels, second, here) > 0, 1.0, -1.0)
            sums[c], spreads[c] = _sum_and_spread(place[here], sign)
    return Evidence(sums, spreads)


def evidence_in_view(
    told: Floats, rest: Floats, labels: Ints, suspects: Flags, heard: Flags
) -> Evidence:
    """The evidence for a candidate of a narrow view; arguments as for `evidence_of`."""
    sums, spreads = np.zeros(told.shape[1]), np.zeros(told.shape[1])
    second = _likeliest_other(told, labels)
    for c in np.unique(labels[suspects & heard]):
        here = np.flatnonzero((labels == c) & heard)
        place = _places(told[:, c], here, np.flatnonzero(labels != c))
        if place is not None and (place[here] < _HALF_WAY).mean() >= _MOST:
            far = here[place[here] >= _BEYOND]
            own = _own_or_wrong(place, rest, labels, second, far) if len(far) else np.zeros(0)
            near = np.histogram(place[here], [0, _HALF_WAY, _BEYOND])[0]
            sums[c], spreads[c] = excess(int(near[0]), int(near[1]), own), 1.0
    return Evidence(sums, spreads)


def excess(before: int, between: int, own: Floats) -> float:
    """How surely more lies beyond than a log-concave tail allows: as a standard normal value.

    before, between: samples before half way, and from there to three quarters. own: -1 to 1 for
    each one beyond, 0 in the mean for wrong labels. The tail is at most that of the exponential
    cloud with the same two counts: the logarithms of the two cross once in each part, so beyond
    the concave one is below. The value is the signed root of twice the log-likelihood ratio of
    three Poisson counts, free against the best exponential cloud.
    """
    total, squares = float(own.sum()), float(np.square(own).sum())
    if total <= 0 or before == 0:
        return 0.0
    # As many samples that count one each would have the same ratio of mean and spread.
    counts = np.array([before, between, total**2 / squares])
    rates = np.stack([1 + _RATES, _RATES**2, _RATES**3 / (1 - _RATES) * total / squares])
    expected = rates * counts.sum() / rates.sum(0)
    best = float(xlogy(counts[:, None], expected).sum(0).max())
    root = float(np.sqrt(max(0.0, 2 * (float(xlogy(counts, counts).sum()) - best))))
    share = between / before
    rate = (share + (share * share + 4 * share) ** 0.5) / 2
    over = rate < 1 and total > between * rate / (1 - rate)
    return root if over else -root


def _places(values: Floats, own: Ints, others_: Ints) -> Floats | None:
    """0 at the median of the class, 1 at that of the others; None where they are not apart."""
    middle, others = np.median(values[own]), np.median(values[others_])
    return (middle - values) / (middle - others) if middle > others else None


def _counted(place: Floats) -> Floats:
    return np.clip(place, -1, 1) ** _POWER


def _own_or_wrong(near: Floats, rest: Floats, labels: Ints, second: Ints, here: Ints) -> Floats:
    """-1 to 1: the place of samples of a class among the members of their second class.

    Members of that class under a wrong label are spread evenly over it, 0 in the mean.
    """
    own = labels[here[0]]
    sign = np.ones(len(here))
    for other in np.unique(second[here]):
        members = np.flatnonzero(labels == other)
        weights = np.maximum(_counted(near[members]), 0)
        if weights.sum() > 0:
            by_rest = rest[:, own] - rest[:, other]
            some = second[here] == other
            sign[some] = 2 * _share_below(by_rest[members], weights, by_rest[here[some]]) - 1
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


def _share_below(values: Floats, weights: Floats, of: Floats) -> Floats:
    """The share of the weight of `values` that lies below each of `of`; of equal ones half."""
    order = np.argsort(values, kind="stable")
    so_far = np.concatenate([[0.0], np.cumsum(weights[order])])
    low, high = (np.searchsorted(values[order], of, side) for side in ("left", "right"))
    out: Floats = (so_far[low] + so_far[high]) / (2 * so_far[-1])
    return out
