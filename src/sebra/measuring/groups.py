"""Scores a classifier's predictions: groups, gaps, and which cue they follow.

A group is a class with one value of every attribute. Gaps look at aligned and conflicting values
only (the paper's Bias GAP, with the sign of its tables: group minus I.D. accuracy).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.measuring.ranks import known_attributes, wilson
from sebra.measuring.scores import GroupScore, Scores
from sebra.samples.table import Attribute, BoolArray, IntArray, Samples, aligned_codes

__all__ = ["MIN_GROUP", "GroupScore", "Scores", "group_numbers", "score"]

MIN_GROUP = 20
UNKNOWN = -1


def score(
    samples: Samples,
    rows: npt.NDArray[Any],
    predicted: npt.NDArray[Any],
    min_group: int = MIN_GROUP,
) -> Scores:
    """Scores the predicted classes of these rows (usually the test split).

    `samples` is the whole data set: its training split gives the weights of the I.D. accuracy and
    what counts as aligned. Rows with a missing attribute count in `average`, `class_average` and
    `per_class` only. Without attributes there is no worst group, and I.D. accuracy is the average.
    """
    rows, predicted = np.asarray(rows, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    _check(samples, rows, predicted)
    labels = samples.labels[rows]
    correct = 100.0 * (predicted == labels)
    per_class = {
        name: float(correct[labels == c].mean())
        for c, name in enumerate(samples.classes)
        if (labels == c).any()
    }
    average = float(correct.mean())
    known = known_attributes(samples)
    annotated = bool(samples.attributes) and bool(known[rows].any())
    aligned = {name: _aligned_codes(samples, a) for name, a in samples.attributes.items()}
    groups = _groups(samples, rows, correct, known, aligned, min_group)
    id_accuracy = _weighted_by_training(groups) if annotated else average
    gaps = {} if id_accuracy is None else _gaps(samples, rows, correct, aligned, id_accuracy)
    worst, between = _worst(groups, _unseen(samples, rows, known)) if annotated else (None, None)
    return Scores(
        average=average,
        class_average=float(np.mean(list(per_class.values()))),
        balanced_average=float(np.mean([g.accuracy for g in groups])) if groups else None,
        id_accuracy=id_accuracy,
        worst_group=None if worst is None else worst.accuracy,
        worst_group_name=None if worst is None else worst.name,
        worst_group_range=between,
        gaps=gaps,
        average_gap=float(np.mean(list(gaps.values()))) if gaps else None,
        cues=_cues(samples, rows, predicted, aligned),
        per_class=per_class,
        groups=groups,
    )


def _check(samples: Samples, rows: IntArray, predicted: IntArray) -> None:
    if len(rows) == 0:
        raise UsageError(
            f"{samples.source or samples.name}: no samples to evaluate; "
            "give data with a test split (or a val split)"
        )
    if rows.shape != predicted.shape:
        raise ValueError(f"{len(predicted)} predictions for {len(rows)} samples")
    if predicted.min() < 0 or predicted.max() >= len(samples.classes):
        raise ValueError(f"predictions must be class numbers below {len(samples.classes)}")


def _aligned_codes(samples: Samples, attribute: Attribute) -> IntArray:
    """Aligned value per class; UNKNOWN where no training sample of the class shows one."""
    codes = aligned_codes(samples, attribute)
    if attribute.aligned is None:
        train = samples.rows("train")
        seen = samples.labels[train][attribute.codes[train] >= 0]
        codes[~np.isin(np.arange(len(samples.classes)), seen)] = UNKNOWN
    return codes


def _groups(
    samples: Samples,
    rows: IntArray,
    correct: npt.NDArray[np.float64],
    known: BoolArray,
    aligned: dict[str, IntArray],
    min_group: int,
) -> tuple[GroupScore, ...]:
    """The groups among the evaluated rows, by class and then by attribute values."""
    ids = group_numbers(samples)
    train = samples.rows("train")
    n_groups = int(ids.max()) + 1
    n_train = np.bincount(ids[train[known[train]]], minlength=n_groups)
    usable = known[rows]
    used = ids[rows[usable]]
    n_test = np.bincount(used, minlength=n_groups)
    hits = np.bincount(used, weights=correct[usable], minlength=n_groups)
    present, first = np.unique(used, return_index=True)
    out = []
    for group, example in zip(present, rows[usable][first], strict=True):
        label = int(samples.labels[example])
        codes = {name: int(a.codes[example]) for name, a in samples.attributes.items()}
        values = {name: samples.attributes[name].levels[code] for name, code in codes.items()}
        alignments = {
            name: "aligned" if code == aligned[name][label] else "conflicting"
            for name, code in codes.items()
            if aligned[name][label] != UNKNOWN
        }
        cues = (f"{name}={value}" for name, value in values.items())
        out.append(
            GroupScore(
                name=", ".join((samples.classes[label], *cues)),
                class_name=samples.classes[label],
                values=values,
                alignment=alignments,
                n_test=int(n_test[group]),
                n_train=int(n_train[group]),
                accuracy=float(hits[group] / n_test[group]),
                small=bool(n_test[group] < min_group),
            )
        )
    return tuple(out)


def _unseen(samples: Samples, rows: IntArray, known: BoolArray) -> bool:
    """Whether a group of the training split has no evaluated sample at all."""
    ids, train = group_numbers(samples), samples.rows("train")
    return not np.isin(ids[train[known[train]]], ids[rows[known[rows]]]).all()


def _worst(
    groups: Sequence[GroupScore], unseen: bool
) -> tuple[GroupScore | None, tuple[float, float] | None]:
    """The worst group; where one that is too small to judge may be worse, between which figures
    the worst lies."""
    worst = min((g for g in groups if not g.small), key=lambda g: g.accuracy, default=None)
    ends = [(g.accuracy, g.accuracy) for g in groups if not g.small]
    small = (wilson(g.accuracy / 100, g.n_test) for g in groups if g.small)
    ends += [(100 * low, 100 * high) for low, high in small]
    ends += [(0.0, 100.0)] * unseen
    low, high = (min(end[k] for end in ends) for k in (0, 1))
    if worst is not None and low >= worst.accuracy:
        return worst, None
    return None, (low, high)


def group_numbers(samples: Samples) -> IntArray:
    """Number of each sample's class × value group; renumbered after every attribute, so that many
    attributes do not overflow."""
    ids = samples.labels.astype(np.int64)
    for attribute in samples.attributes.values():
        ids = ids * (len(attribute.levels) + 1) + attribute.codes + 1
        ids = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    return ids


def _weighted_by_training(groups: Sequence[GroupScore]) -> float | None:
    """I.D. Acc = sum of w_i Acc_i, w_i the share of group i in training (paper, appendix Metrics).

    Groups without test samples cannot be weighed in, the others then share their weight.
    """
    total = sum(g.n_train for g in groups)
    return sum(g.n_train * g.accuracy for g in groups) / total if total else None


def _gaps(
    samples: Samples,
    rows: IntArray,
    correct: npt.NDArray[np.float64],
    aligned: dict[str, IntArray],
    id_accuracy: float,
) -> dict[str, float]:
    """Accuracy where exactly these attributes are conflicting, each class counting the same,
    minus I.D. accuracy. Combinations that no evaluated sample shows are absent."""
    if not samples.attributes:
        return {}
    labels = samples.labels[rows]
    codes = np.stack([a.codes[rows] for a in samples.attributes.values()], axis=1)
    expected = np.stack([aligned[name][labels] for name in samples.attributes], axis=1)
    usable = ((codes >= 0) & (expected != UNKNOWN)).all(axis=1)
    conflicting = codes != expected
    conflicts = conflicting.sum(axis=1)
    gaps = {}
    for name, members in _combinations(tuple(samples.attributes)):
        exactly = (conflicts == len(members)) & conflicting[:, members].all(axis=1)
        chosen = usable & exactly
        if chosen.any():
            accuracies = [correct[chosen & (labels == c)].mean() for c in np.unique(labels[chosen])]
            gaps[name] = float(np.mean(accuracies)) - id_accuracy
    return gaps


def _combinations(names: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every combination of up to three attributes; of more, the singles, the pairs and "all"."""
    k = len(names)
    sizes = range(1, k + 1) if k <= 3 else (1, 2)
    for size in sizes:
        for members in combinations(range(k), size):
            yield "+".join(names[m] for m in members), members
    if k > 3:
        yield "all", tuple(range(k))


def _cues(
    samples: Samples, rows: IntArray, predicted: IntArray, aligned: dict[str, IntArray]
) -> dict[str, float]:
    """Percent of predictions that agree with the label, and with each attribute: the predicted
    class is one whose aligned value the sample shows.

    Samples whose value is aligned in no class, or in all of them, point nowhere and do not count.
    """
    cues = {"label": 100.0 * float((predicted == samples.labels[rows]).mean())}
    for name, attribute in samples.attributes.items():
        matches = attribute.codes[rows][:, None] == aligned[name][None, :]
        matches &= aligned[name][None, :] != UNKNOWN
        points = matches.any(axis=1) & ~matches.all(axis=1)
        if points.any():
            follows = matches[np.arange(len(rows)), predicted]
            cues[name] = 100.0 * float(follows[points].mean())
    return cues
