"""Is there a pattern, or are there only hard and mislabelled samples?

On the line from a class to the others, along which held-out models see the property, a class with
a pattern has a second, smaller cloud at the place of the others. Without one a class is one cloud,
apart from wrong labels. Two tests hold both against the samples; each gives per class a value that
is standard normal, or less, without a pattern.

*A second cloud.* The likeliest log-concave density of a class is compared with the likeliest one
plus a share of the others' own (`clouds.py`), which must not be wrong labels: those are, by all
else, spread evenly over the class they belong to, while samples that break a pattern are at its
end. The lower of the two values counts.

*A lean.* Where two clouds overlap, the near side of the class is thicker than the far side. Each
sample counts by its way from the median of its class, to the third power, and against a pattern
where it is more like the class it seems to be than the median member of that: half of all wrong
labels are. Real clouds lean a little by nature, so of this chance only the root is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr

from sebra.ranking.balance import Flags, Floats, Ints, best_other
from sebra.ranking.clouds import second_cloud

_POWER = 3  # the smallest odd one above the first, which the median takes out
_AROUND = 0.1  # share of a class on each side of its median that says how dense it is there
MOST = 0.75  # of a class has a property that most of it share; by halves nature splits classes
BELIEVED = 0.5  # power of a lean's chance: real clouds lean a little by nature
_EVEN = 1 / 3  # variance of wrong labels' places, which are even from -1 to 1


@dataclass(frozen=True)
class Evidence:
    """Per class the value of a second cloud and of its rights; the sum and variance of its lean.

    Rights: that it is not made of wrong labels. A variance of 0 says that a class was not tested.
    """

    clouds: Floats
    rights: Floats
    sums: Floats
    spreads: Floats

    def chance(self, looks: int) -> float:
        """Of a false alarm, after so many looks at the same samples."""
        looks *= 4  # all classes together and the best of them, by either test
        (cloud, lean), (alone, leans) = self._together(self.spreads > 0), self._best()
        believed = float((looks * min(lean, leans)) ** BELIEVED)
        return min(1.0, looks * min(cloud, alone), believed)

    def covers(self, most: float) -> Flags:
        """The classes with a pattern that stands.

        All that were tested where they show it better together than the best one alone. Else those
        that show it on their own, counted in wrongly with chance `most` by either test, and the
        others where they do so together. By now a second cloud is enough: whether it is made of
        wrong labels was asked of the pattern.
        """
        tested = self.spreads > 0
        together, best = self._together(tested), self._best()
        kind = 0 if min(together[0], best[0]) <= min(together[1], best[1]) ** BELIEVED else 1
        if together[kind] < best[kind]:
            return tested
        known = replace(self, rights=self.clouds)
        alone: Flags = np.min(known._alone(), axis=0) <= most
        others = tested & ~alone
        return alone | others if min(known._together(others)) <= most else alone

    @property
    def _second(self) -> Floats:
        return np.maximum(0.0, np.minimum(self.clouds, self.rights))

    def _best(self) -> tuple[float, float]:
        """The chances of the best class, as often as there are classes to choose from."""
        many = max(1, int((self.spreads > 0).sum()))
        cloud, lean = (float(chances.min()) for chances in self._alone())
        return many * cloud, many * lean

    def _alone(self) -> tuple[Floats, Floats]:
        """The chances of each class, by second clouds and by leaning."""
        tested = self.spreads > 0
        lean = self.sums / np.sqrt(np.where(tested, self.spreads, 1.0))
        return np.where(tested, ndtr(-self._second), 1.0), np.where(tested, ndtr(-lean), 1.0)

    def _together(self, some: Flags) -> tuple[float, float]:
        """The same of some classes taken together."""
        if not some.any():
            return 1.0, 1.0
        m, total = int(some.sum()), float(self._second[some].sum())
        # Values below 0 are cut off: as many are above as a coin shows heads, and k of them add up
        # to more than the total at most 2^k times as often as k that are not cut off.
        k = np.arange(1, m + 1)
        often = k * np.log(2) + log_ndtr(-total / np.sqrt(k))
        heads = np.exp(gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1) - m * np.log(2))
        cloud = np.exp(np.minimum(0.0, often)) @ heads
        lean = self.sums[some].sum() / self.spreads[some].sum() ** 0.5
        return (float(cloud) if total else 1.0), float(ndtr(-lean))

    @staticmethod
    def none(classes: int) -> Evidence:
        return Evidence(*np.zeros((4, classes)))


def evidence_of(
    told: Floats,
    rest: Floats | None,
    labels: Ints,
    suspects: Flags,
    heard: Flags,
    most: float = 0.0,
) -> Evidence:
    """The evidence for a candidate.

    told, rest: held-out logits, n x classes, of models that see the candidate and of models that
    see the class by all else (None: as if no label were wrong). suspects: may break the candidate;
    a class without any has no evidence. heard: follow the patterns found so far, so they are one
    cloud of their class as far as is known. most: the share of a class that must lie on its own
    side of half way.
    """
    clouds, rights, sums, spreads = np.zeros((4, told.shape[1]))
    second = best_other(told, labels)
    for c in np.unique(labels[suspects & heard]):
        here, others = np.flatnonzero((labels == c) & heard), np.flatnonzero((labels != c) & heard)
        place = _places(told[:, c], here, others)
        if place is not None and (place[here] < 0.5).mean() >= most:
            own = np.ones(len(here))
            if rest is not None:
                own = _own_or_wrong(place, rest, labels, second, here)
            sums[c], spreads[c] = _sum_and_spread(place[here], np.where(own > 0, 1.0, -1.0))
            clouds[c], share = second_cloud(place[here], place[others])
            # Of samples at a place 1 - share are ordinary ones of the class: those are at the end.
            excess = share * (own - (1 - share))
            rights[c] = excess.sum() / max(1e-9, _EVEN * np.square(share).sum()) ** 0.5
    return Evidence(clouds, rights, sums, spreads)


def _places(values: Floats, own: Ints, others_: Ints) -> Floats | None:
    """0 at the median of the class, 1 at that of the others; None where they are not apart."""
    if not len(own) or not len(others_):
        return None
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
        return 0.0, 1.0

    def counts(shift: float) -> Floats:
        counted = _counted(place - shift)
        return np.where(counted > 0, counted * sign, counted)

    each, step = counts(0.0), (high - low) / 2
    slope = (counts(step).sum() - counts(-step).sum()) / (2 * step)
    density = 2 * _AROUND / (high - low)
    influence = each - each.mean() + slope / (2 * density * len(place)) * np.sign(place)
    # One sample more or less is always possible, however alike the others are.
    return float(each.sum()), max(1.0, float(np.square(influence).sum()))


def _share_below(values: Floats, weights: Floats, of: Floats) -> Floats:
    """The share of the weight of `values` that lies below each of `of`; of equal ones half."""
    order = np.argsort(values, kind="stable")
    so_far = np.concatenate([[0.0], np.cumsum(weights[order])])
    low, high = (np.searchsorted(values[order], of, side) for side in ("left", "right"))
    out: Floats = (so_far[low] + so_far[high]) / (2 * so_far[-1])
    return out
