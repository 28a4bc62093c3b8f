"""Is a class one cloud on the line to the others, or is there a second one at their place?

Counts in narrow bins are fitted by the log-concave intensity that makes them likeliest: its
logarithm is a line less bends, so Newton's steps are least squares without negative bends.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import nnls

from sebra.ranking.balance import Floats

_EDGES = np.linspace(-1, 2, 25)  # a cloud's length around both: eighths of the way
_FEWEST = 5  # samples of either side, below which nothing is compared
_ROUNDS, _SETTLED = 60, 1e-3  # of a fit at most, and the gain in log-likelihood that ends it


def second_cloud(own: Floats, others: Floats) -> tuple[float, Floats]:
    """How surely a class has a second cloud, as a normal value, and each sample's share in it.

    own, others: places on the line, 0 at the median of the class and 1 at that of the others,
    whose distribution is that of the second cloud.
    """
    counts, there = (np.histogram(x, _EDGES)[0].astype(np.float64) for x in (own, others))
    if min(counts.sum(), there.sum()) < _FEWEST:
        return 0.0, np.zeros(len(own))
    alone = log_concave(counts)
    likely = _likelihood(counts, alone)
    there *= counts.sum() / there.sum()
    share, before = counts.sum() ** -0.5, -np.inf  # any share to begin with that is not nothing
    for _ in range(_ROUNDS):  # EM
        second = share * there
        part = second / np.maximum(alone + second, 1e-12)
        share, alone = float((part * counts).sum() / counts.sum()), log_concave(counts * (1 - part))
        both = _likelihood(counts, alone + share * there)
        if both - before < _SETTLED:
            break
        before = both
    bins = np.searchsorted(_EDGES, own, side="right") - 1
    inside = np.append(part, [1.0, 0.0])  # beyond the window on the side of the others, and before
    return max(0.0, 2 * (both - likely)) ** 0.5, inside[np.minimum(bins, len(part))]


def log_concave(counts: Floats) -> Floats:
    """The log-concave intensity that makes the counts of equal bins likeliest."""
    out, held = np.zeros(len(counts)), np.flatnonzero(counts > 1e-9)
    if len(held) == 0:
        return out
    part = slice(held[0], held[-1] + 1)  # outside it falls to nothing, which costs nothing
    n = counts[part]
    if len(n) < 3:
        out[part] = n
        return out
    bends, x = _bends(len(n)), np.arange(len(n))
    middle = (n * x).sum() / n.sum()
    wide = max(0.5, 1.2 * ((n * np.square(x - middle)).sum() / n.sum()) ** 0.5)
    log = np.log(n.sum() / (2.5 * wide)) - np.square((x - middle) / wide) / 2  # a normal cloud
    log = np.maximum(log, log.max() - 15)
    best = _likelihood(n, np.exp(log))
    for _ in range(_ROUNDS):
        rate = np.exp(log)
        weight = np.maximum(rate, 1e-4)
        root, wanted = np.sqrt(weight), log + (n - rate) / weight
        towards = bends @ nnls(bends * root[:, None], wanted * root, maxiter=1000)[0] - log
        step = 1.0
        while step > 1e-4 and _likelihood(n, np.exp(np.minimum(log + step * towards, 30))) < best:
            step /= 2
        if step <= 1e-4:
            break
        log = log + step * towards
        before, best = best, _likelihood(n, np.exp(log))
        if best - before < _SETTLED / 100:
            break
    out[part] = np.exp(log)
    return out


@lru_cache
def _bends(bins: int) -> Floats:
    """A line, up or down, and a bend downwards at every bin: concave where none is negative."""
    x = np.arange(bins, dtype=np.float64)
    line = [np.ones(bins), -np.ones(bins), x - x.mean(), x.mean() - x]
    return np.stack([*line, *(-np.maximum(x - at, 0) for at in x[1:-1])], axis=1)


def _likelihood(counts: Floats, rates: Floats) -> float:
    """The logarithm of Poisson's likelihood, but for what does not depend on the rates."""
    return float((counts * np.log(np.maximum(rates, 1e-12))).sum() - rates.sum())
