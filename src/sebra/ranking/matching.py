"""Which pattern of one ranking is which of another: they are followed by the same samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sebra.ranking.ranking import Ranking

Floats = npt.NDArray[np.float64]
SAME = 0.5  # correlation of who follows them from which on two patterns are the same one


def matched(now: Ranking, before: Ranking) -> dict[str, str]:
    """The pattern of `before` that each pattern of `now` is; those without one are left out.

    Only samples that both know are looked at, and each pattern is taken once, the closest first.
    """
    was = before.table.set_index("id")
    here = now.table[now.table["id"].isin(was.index)]
    if len(here) == 0 or not now.stages or not before.stages:
        return {}
    a = here[now.stages].to_numpy() > 0.5
    b = was.loc[here["id"], before.stages].to_numpy() > 0.5
    close = _correlation(a.astype(float), b.astype(float))
    out: dict[str, str] = {}
    while close.max() >= SAME:
        i, j = np.unravel_index(close.argmax(), close.shape)
        out[now.stages[i]] = before.stages[j]
        close[i, :] = close[:, j] = -1.0
    return out


def _correlation(a: Floats, b: Floats) -> Floats:
    """Of every column of a with every column of b; 0 where a column does not vary."""
    a, b = a - a.mean(0), b - b.mean(0)
    size = np.outer(np.sqrt((a * a).sum(0)), np.sqrt((b * b).sum(0)))
    return np.divide(a.T @ b, size, out=np.zeros_like(size), where=size > 0)
