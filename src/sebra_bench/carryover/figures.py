"""What is measured of one run: calibration, and how well a discovered pattern is the true one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.measuring.groups import group_numbers
from sebra.ranking.ranking import Ranking
from sebra.samples.table import Samples, alignment

BINS = 15
TOLD_APART = 0.9  # the area from which on a pattern counts as found
Floats = npt.NDArray[np.float64]


def calibration_error(probabilities: Floats, labels: Any, weights: Floats) -> float:
    """Expected calibration error over bins of equal width of the largest probability."""
    sure = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bins = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=weights * (right - sure), minlength=BINS)
    return float(np.abs(gaps).sum() / weights.sum())


def id_weights(samples: Samples) -> Floats:
    """Weights of the test samples by the share of their group in training: the I.D. samples."""
    train, test = samples.rows("train"), samples.rows("test")
    if not samples.attributes:
        return np.ones(len(test))
    groups = group_numbers(samples)
    size = int(groups.max()) + 1
    in_train = np.bincount(groups[train], minlength=size)
    in_test = np.bincount(groups[test], minlength=size)
    weights: Floats = in_train[groups[test]] / in_test[groups[test]]
    return weights


def finding(
    ranking: Ranking | None, samples: Samples, telling: Sequence[str] | None
) -> dict[str, Any]:
    """How many stages a ranking names, and of each attribute how well the best of them (of a
    ranking without stages: its order) tells samples that follow it from those that break it; which
    stage that is, where one is found.

    telling: the classes in which the attribute goes with the label, None for all of them.
    """
    from sklearn.metrics import roc_auc_score

    if ranking is None:
        return {}
    part = samples.rows("train")
    table = ranking.table.set_index("id").loc[samples.ids[part].tolist()]
    scores = [table[name].to_numpy() for name in ranking.stages] or [table["spuriosity"].to_numpy()]
    out: dict[str, Any] = {"stages": len(ranking.stages)}
    names, aligned = alignment(samples)
    kept = np.ones(len(part), dtype=bool)
    if telling is not None:
        codes = [samples.classes.index(name) for name in telling]
        kept = np.isin(samples.labels[part], codes)
    areas, best = {}, {}
    for k, name in enumerate(names):
        follows = aligned[part, k][kept]
        if 0 < follows.sum() < len(follows):
            each = [float(roc_auc_score(follows, s[kept])) for s in scores]
            areas[name], best[name] = max(each), int(np.argmax(each))
    if areas:
        out["areas"] = areas
        out["area"] = float(np.mean(list(areas.values())))
        surest = max(areas, key=lambda name: areas[name])
        out["found"] = bool(ranking.stages) and areas[surest] >= TOLD_APART
        if out["found"]:
            out["stage"] = ranking.stages[best[surest]]
    return out
