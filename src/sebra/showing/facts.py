"""What the run knows, turned into figures: how strong each shortcut is and who found it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.measuring.ranks import column_d
from sebra.samples.table import Samples, alignment
from sebra.showing.ranked import FOLLOWS, Ranked

Array = npt.NDArray[Any]
SLICES = 20  # of the rank, for the share of aligned samples along it
QUALITY = {
    "somers_d": ("Somers’ D", "agreement with the true groups: 1 perfect, 0 chance"),
    "tau_b": ("τ-b", "Kendall’s τ-b, cut to the true group sizes"),
    "plain_tau_b": ("plain τ-b", "Kendall’s τ-b of rank and group; a perfect order is below 1"),
    "published": ("published score", "as in the paper’s tables; a random order is not 0"),
    "pd": ("PD", "performance disparity: least minus most spurious, in points"),
}
RELATED = 0.3  # Somers' D from which an attribute is called related to a bias


@dataclass(frozen=True)
class Cue:
    """An attribute as a shortcut: how well it alone tells the class of a training sample.

    `strength` is 0 for a cue no better than always naming the largest class, 1 for a perfect one.
    """

    name: str
    accuracy: float
    baseline: float
    strength: float
    shares: Mapping[str, float]  # per class, of samples with the class's own value


@dataclass(frozen=True)
class Bias:
    """A discovered bias: a stage column of the ranking."""

    stage: str
    number: int
    follows: float  # share of all samples
    per_class: Mapping[str, float]
    related: tuple[tuple[str, float], ...]  # attributes with their Somers' D, strongest first
    found: Mapping[str, Any] = field(default_factory=dict)  # what the run knows of the pattern


def cues(samples: Samples) -> list[Cue]:
    """Each attribute's strength over the training samples, in the attributes' order."""
    names, aligned = alignment(samples)
    train = samples.rows("train")
    out = []
    for k, name in enumerate(names):
        attribute = samples.attributes[name]
        rows = train[attribute.codes[train] >= 0]
        if not len(rows):
            continue
        labels = samples.labels[rows]
        table = np.zeros((len(attribute.levels), len(samples.classes)))
        np.add.at(table, (attribute.codes[rows], labels), 1)
        accuracy = float(table.max(axis=1).sum() / table.sum())
        baseline = float(table.sum(axis=0).max() / table.sum())
        strength = (accuracy - baseline) / (1 - baseline) if baseline < 1 else 0.0
        shares = {
            c: float(aligned[rows, k][labels == i].mean())
            for i, c in enumerate(samples.classes)
            if (labels == i).any()
        }
        out.append(Cue(name, accuracy, baseline, strength, shares))
    return out


def biases(ranked: Ranked, patterns: Sequence[Mapping[str, Any]] = ()) -> list[Bias]:
    """The discovered biases, strongest first as the ranking found them."""
    out = []
    known = [*patterns, *[{}] * len(ranked.stages)]
    for number, (stage, column) in enumerate(ranked.stages.items(), 1):
        follows = column > FOLLOWS
        per_class = {
            c: float(follows[order].mean())
            for c, order in zip(ranked.classes, ranked.orders, strict=True)
            if len(order)
        }
        related = _related(ranked, column)
        out.append(
            Bias(stage, number, float(follows.mean()), per_class, related, known[number - 1])
        )
    return out


def _related(ranked: Ranked, column: Array) -> tuple[tuple[str, float], ...]:
    """Attributes that the column goes with, by Somers' D of the column given their alignment."""
    if not ranked.samples.attributes:
        return ()
    names, aligned, known = ranked.aligned()
    found = []
    for k, name in enumerate(names):
        d = column_d(column[known], aligned[known, k], ranked.labels[known])
        if d is not None and abs(d) >= RELATED:
            found.append((name, d))
    return tuple(sorted(found, key=lambda pair: -abs(pair[1])))


def aligned_along_rank(ranked: Ranked) -> dict[str, Array]:
    """Per attribute, the share of aligned samples in equal slices of each class's rank."""
    if not ranked.samples.attributes or not len(ranked):
        return {}
    names, aligned, known = ranked.aligned()
    sizes = np.array([max(1, len(order)) for order in ranked.orders])
    slices = min(SLICES, int(sizes.max()))
    place = np.minimum(ranked.rank * slices // sizes[ranked.labels], slices - 1)
    n = np.bincount(place[known], minlength=slices)
    out = {}
    for k, name in enumerate(names):
        hits = np.bincount(place[known], weights=aligned[known, k], minlength=slices)
        out[name] = np.divide(hits, n, out=np.full(slices, np.nan), where=n > 0)
    return out


def bucket_counts(ranked: Ranked) -> dict[str, dict[int, int]]:
    """Samples per bucket for each class, empty buckets left out."""
    out = {}
    for label, order in zip(ranked.classes, ranked.orders, strict=True):
        numbers, counts = np.unique(ranked.bucket[order], return_counts=True)
        out[label] = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return out
