"""Wrong labels on purpose, to measure how well they are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sebra.errors import UsageError
from sebra.samples.table import BoolArray, Samples

KINDS = ("symmetric", "pair")


def inject_noise(
    samples: Samples, share: float, kind: str = "symmetric", seed: int = 0
) -> tuple[Samples, BoolArray]:
    """The samples with a share of the training labels changed, and which rows those are.

    kind: `symmetric` draws any other class, `pair` takes the next one, as if two classes were
    mixed up. Which rows are changed depends on the seed alone.
    """
    if kind not in KINDS:
        raise UsageError(f"noise: kind {kind!r} is not one of {', '.join(KINDS)}")
    if not 0 <= share <= 1:
        raise UsageError(f"noise: the share must be from 0 to 1, not {share}")
    classes = len(samples.classes)
    if classes < 2:
        raise UsageError(f"noise: {samples.source} has one class only, so no label can be wrong")
    rng = np.random.default_rng(seed)
    train = rng.permutation(samples.rows("train"))
    rows = train[: round(share * len(train))]
    steps = rng.integers(1, classes, len(rows)) if kind == "symmetric" else 1
    labels = samples.labels.copy()
    labels[rows] = (labels[rows] + steps) % classes
    changed = np.zeros(len(samples), dtype=np.bool_)
    changed[rows] = True
    return replace(samples, labels=labels), changed
