"""What can be had: scikit-learn's logistic regression, plain or with every true group as heavy.

Over frozen features these are the yardsticks that no method of ours made; a network that is
fine-tuned is measured beside the same training on even draws from the true groups.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.engine.session import Session
from sebra.measuring.groups import group_numbers
from sebra.ranking.order import ranks_within_classes, spuriosity_of
from sebra.ranking.ranking import Ranking
from sebra.runs.meter import Meter
from sebra.samples.table import Samples, true_groups
from sebra.workflows.debias import DebiasOptions, DebiasRun, debias_prepared
from sebra.workflows.prepared import Prepared

LOGISTIC, TRUE_GROUPS = "logistic", "true-groups"
REFERENCES = (LOGISTIC, TRUE_GROUPS)
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # scikit-learn's C
FOLDS = 3
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """Probabilities of the test samples, and how the strength was chosen."""

    probabilities: Floats
    selection: str


def logistic(prepared: Prepared, seed: int, balanced: bool) -> Reference:
    """A logistic regression over standardised features, its strength chosen by cross-validation.

    balanced: every true group weighs the same, in training and in the choice. A group is a class
    with one value of every attribute, or with an aligned or conflicting one: where the values are
    many and each is rare, cross-validation says which of the two teaches more.
    """
    samples, prepared = prepared.samples, prepared.enlarged()
    if balanced and prepared.mode == "features":
        prepared = prepared.widened()  # what plain training has
    train, test = _features(prepared, "train"), _features(prepared, "test")
    mean, spread = train.mean(axis=0), train.std(axis=0)
    spread = np.where(spread > 0, spread, 1)
    train, test = (train - mean) / spread, (test - mean) / spread
    rows = samples.rows("train")
    labels = samples.labels[rows]
    weightings = _weightings(samples, rows) if balanced else [np.ones(len(rows))]
    weights, strength = _choose(train, labels, weightings, seed)
    model = _fit(train, labels, weights, strength)
    probabilities = np.zeros((len(test), len(samples.classes)))
    probabilities[:, model.classes_] = model.predict_proba(test)
    return Reference(probabilities, f"C = {strength:g} by {FOLDS} folds")


def even_draws(prepared: Prepared, session: Session, meter: Meter) -> DebiasRun:
    """A network trained on even draws from the true groups of every class."""
    import pandas as pd

    part, _ = prepared.split("train")
    samples = prepared.samples
    groups = group_numbers(samples)[samples.rows("train")]
    # As a ranking: the groups of a class are its buckets, the largest first.
    counts = np.bincount(groups)
    bucket = np.argsort(np.argsort(-counts, kind="stable"))[groups]
    rank = ranks_within_classes(bucket, np.zeros(len(groups)), part.labels)
    table = pd.DataFrame(
        {
            "id": part.ids,
            "label": np.asarray(part.classes, dtype=object)[part.labels],
            "rank": rank,
            "bucket": bucket,
            "spuriosity": spuriosity_of(rank, part.labels),
        }
    )
    options = DebiasOptions("resample")
    return debias_prepared(prepared, options, session, meter, Ranking(table))


def _features(prepared: Prepared, name: str) -> Floats:
    import torch

    task = prepared.task(name)
    index = torch.arange(len(task), device=task.device)
    found: Floats = task.batch(index, None).float().cpu().numpy().astype(np.float64)
    return found


def _weightings(samples: Samples, rows: npt.NDArray[np.int64]) -> list[Floats]:
    """Groups by value first: the weights that make an attribute say nothing of the class."""
    by_value = group_numbers(samples)[rows]
    conflicts = true_groups(samples)[rows]
    by_conflict = conflicts * len(samples.classes) + samples.labels[rows]
    found = [_even(by_value), _even(by_conflict)]
    return found[:1] if np.allclose(found[0], found[1]) else found


def _even(groups: npt.NDArray[np.int64]) -> Floats:
    """Weights of mean 1 that give every group the same mass."""
    _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights: Floats = 1.0 / counts[codes]
    weights *= len(groups) / weights.sum()
    return weights


def _choose(
    values: Floats, labels: npt.NDArray[np.int64], weightings: list[Floats], seed: int
) -> tuple[Floats, float]:
    """Weights and strength with the best held-out accuracy under the first of the weightings."""
    from sklearn.model_selection import StratifiedKFold

    # Samples of a weight are of groups of one size: both kinds should be in every fold.
    kinds = np.unique(np.c_[weightings[0], labels], axis=0, return_inverse=True)[1].ravel()
    right: dict[tuple[int, float], float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a group smaller than the number of folds
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(values, kinds))
    for (k, weights), strength in product(enumerate(weightings), STRENGTHS):
        for inner, outer in folds:
            model = _fit(values[inner], labels[inner], weights[inner], strength)
            hits = model.predict(values[outer]) == labels[outer]
            here = float((weightings[0][outer] * hits).sum())
            right[k, strength] = right.get((k, strength), 0.0) + here
    chosen, strength = max(right, key=lambda key: right[key])
    return weightings[chosen], strength


def _fit(values: Floats, labels: npt.NDArray[np.int64], weights: Floats, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=500).fit(values, labels, sample_weight=weights)
