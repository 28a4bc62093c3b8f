"""How well an order of samples agrees with the true groups, class by class.

A smaller rank means more spurious, and group 0 holds the samples aligned in every attribute, so a
perfect order has ranks that rise with the group number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.samples.table import BoolArray, IntArray, Samples, alignment, true_groups

Array = npt.NDArray[Any]
Measure = Callable[[Array, Array], float]


def somers_d(order_score: Array, groups: Array) -> float:
    """Somers' D of the order given the groups, over pairs from different groups.

    1 where every higher group has the higher scores, 0 for a random order; tied scores count as
    zero. NaN where fewer than two groups are present. O(n log n).
    """
    n = len(groups)
    pairs = _pairs(n) - _tied_pairs(groups)
    if pairs == 0:
        return float("nan")
    untied = _pairs(n) - _tied_pairs(order_score)
    if untied == 0:
        return 0.0
    from scipy import stats

    # tau-b is (concordant - discordant) / sqrt(untied * pairs); undoing its denominator gives the
    # count in O(n log n) whatever the number of groups.
    tau_b = _statistic(stats.kendalltau(order_score, groups))
    surplus = round(tau_b * math.sqrt(untied) * math.sqrt(pairs))
    return surplus / pairs


def plain_tau_b(order_score: Array, groups: Array) -> float:
    """Kendall's tau-b of the order and the true group as they are. An order without ties cannot
    reach 1 (0.43 with the group sizes of the paper's first data set); NaN of a single group."""
    from scipy import stats

    return _statistic(stats.kendalltau(order_score, groups))


def size_matched_tau_b(order_score: Array, groups: Array) -> float:
    """Kendall's tau-b between the true group and the chunk a sample falls into when the order is
    cut into chunks of the true group sizes. NaN where fewer than two groups are present."""
    return _of_chunks("kendalltau", order_score, groups)


def published_score(order_score: Array, groups: Array) -> float:
    """The figure behind the paper's "Kendall's tau": SciPy's weighted tau of the same chunks.

    Its weights favour the last groups and a random order does not score 0 (about 0.25 with the
    group sizes of its first data set): for comparison with the paper only.
    """
    return _of_chunks("weightedtau", order_score, groups)


def _of_chunks(statistic: str, order_score: Array, groups: Array) -> float:
    if len(np.unique(groups)) < 2:
        return float("nan")
    from scipy import stats

    return _statistic(getattr(stats, statistic)(size_matched_chunks(order_score, groups), groups))


def size_matched_chunks(order_score: Array, groups: Array) -> Array:
    """The group each sample would have if the order were right: the first n_0 samples of the
    order get the first group present, the next n_1 the second, and so on."""
    present, sizes = np.unique(groups, return_counts=True)
    chunks = np.empty(len(groups), dtype=present.dtype)
    chunks[order_of(order_score)] = np.repeat(present, sizes)
    return chunks


def order_of(order_score: Array) -> IntArray:
    """Indices by rising score. Ties are broken by a fixed shuffle, since files are often stored
    group by group and their order must not pass for a good ranking."""
    shuffle = np.random.default_rng(0).permutation(len(order_score))
    return np.lexsort((shuffle, order_score)).astype(np.int64)


def by_class(measure: Measure, score: Array, groups: Array, labels: Array) -> dict[int, float]:
    """The measure within each class that has at least two groups."""
    out: dict[int, float] = {}
    for c in np.unique(labels):
        members = labels == c
        value = measure(score[members], groups[members])
        if np.isfinite(value):
            out[int(c)] = value
    return out


def column_d(column: Array, aligned: BoolArray, labels: Array) -> float | None:
    """Class-wise Somers' D of a stage column given one attribute's alignment, averaged.

    1 where the column puts every aligned sample of a class above every conflicting one; None
    where no class has both.
    """
    return _mean(by_class(somers_d, column, aligned.astype(np.int64), labels))


def areas(values: Array, side: Array) -> Array:
    """Of each column the chance that one of the side has more of it than one of the others."""
    from scipy.stats import rankdata  # takes a second to load

    ranks = rankdata(values, axis=0)
    n = int(side.sum())
    out: Array = (ranks[side].sum(axis=0) - n * (n + 1) / 2) / (n * (len(side) - n))
    return out


def wilson(share: float, n: int) -> tuple[float, float]:
    """Between which shares the true one lies, 19 times in 20, where n samples show this one
    (Wilson, 1927)."""
    z2 = 1.96**2
    middle = share + z2 / (2 * n)
    spread = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n)))
    low, high = ((middle + sign * spread) / (1 + z2 / n) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def known_attributes(samples: Samples) -> BoolArray:
    """Mask over all rows: every attribute of the sample is known (no code of -1)."""
    known = np.ones(len(samples), dtype=np.bool_)
    for attribute in samples.attributes.values():
        known &= attribute.codes >= 0
    return known


def quality_of(
    samples: Samples, rows: Array, ranks: Array, stages: Mapping[str, Array] | None = None
) -> dict[str, Any] | None:
    """Every figure of ranks (and stage columns) given for these rows, against the true groups.

    Rows with a missing attribute are left out; None where nothing is left to compare with. Each
    measure is the average over the classes with at least two groups (None where there is no such
    class); `per_class` holds them class by class, `stages` each stage column's Somers' D given
    each attribute.
    """
    known = known_attributes(samples)[rows]
    if not samples.attributes or not known.any():
        return None
    rows, ranks = rows[known], ranks[known]
    labels, groups = samples.labels[rows], true_groups(samples)[rows]
    measures: dict[str, Measure] = {
        "somers_d": somers_d,
        "tau_b": size_matched_tau_b,
        "plain_tau_b": plain_tau_b,
        "published": published_score,
    }
    figures = {key: by_class(f, ranks, groups, labels) for key, f in measures.items()}
    per_class: dict[str, dict[str, float]] = {}
    for key, values in figures.items():
        for c, value in values.items():
            per_class.setdefault(samples.classes[c], {})[key] = value
    names, aligned = alignment(samples)
    sides = dict(zip(names, aligned[rows].T, strict=True))
    given = {
        stage: {name: column_d(column[known], side, labels) for name, side in sides.items()}
        for stage, column in (stages or {}).items()
    }
    return {
        **{key: _mean(values) for key, values in figures.items()},
        "per_class": per_class,
        "stages": [{"name": stage, "given": found} for stage, found in given.items()],
    }


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def _tied_pairs(values: Array) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _statistic(result: Any) -> float:
    return float(result.statistic)


def _mean(values: Mapping[int, float]) -> float | None:
    return float(np.mean(list(values.values()))) if values else None
