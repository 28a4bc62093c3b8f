"""Canvases to plant on: every form of DATA, scikit-learn's built-in tables, and parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import SPLITS, FeatureArray, ImageFiles, Samples

BUILT_IN = "sklearn:"
TABLES = ("digits", "wine", "breast_cancer", "iris")
SCALED = "?scaled"
TEST_SHARE = 0.3


def open_canvas(data: str, classes: Sequence[str] = (), seed: int = 0) -> Samples:
    """The samples of a canvas with a training and a test split, of these classes alone.

    `data` is any form of DATA, or `sklearn:NAME` (`sklearn:NAME?scaled`: columns standardised).
    Data without a test split are split by class; validation samples go to training.
    """
    samples = _built_in(data) if data.startswith(BUILT_IN) else open_samples(data)
    split = np.where(samples.split == 1, 0, samples.split).astype(np.int8)
    samples = replace(samples, attributes={}, split=split)
    if classes:
        samples = only_classes(samples, classes)
    if len(samples.rows("test")):
        return samples
    return replace(samples, split=_split(samples.labels, seed))


def write_canvas(data: str, classes: Sequence[str], out: Path) -> str:
    """The canvas as DATA of its own: an archive of arrays, or a manifest of the same files."""
    import pandas as pd

    samples = open_canvas(data, classes)
    label = np.array(samples.classes)[samples.labels]
    split = np.array(SPLITS)[samples.split]
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(samples.content, FeatureArray):
        values = samples.content.values[samples.content.rows]
        np.savez(out / "data.npz", X=values, y=label, split=split)
        return str(out / "data.npz")
    if not isinstance(samples.content, ImageFiles):
        raise UsageError(f"{data}: a part of it needs arrays or image files")
    paths = [str(path) for path in samples.content.paths]
    table = pd.DataFrame({"id": samples.ids, "path": paths, "label": label, "split": split})
    table.to_csv(out / "manifest.csv", index=False)
    return str(out / "manifest.csv")


def only_classes(samples: Samples, classes: Sequence[str]) -> Samples:
    """The samples of some classes, which are numbered anew in the order of their names."""
    missing = [name for name in classes if name not in samples.classes]
    if missing:
        known = ", ".join(samples.classes)
        raise UsageError(f"--classes: no class {missing[0]!r} in {samples.source} (has: {known})")
    kept = sorted(set(classes))
    if len(kept) < 2:
        raise UsageError("--classes: give at least two classes")
    codes = [samples.classes.index(name) for name in kept]
    part = samples.take(np.flatnonzero(np.isin(samples.labels, codes)))
    labels = np.searchsorted(codes, part.labels).astype(np.int64)
    return replace(part, labels=labels, classes=tuple(kept))


def _built_in(data: str) -> Samples:
    from sklearn import datasets

    name, scaled = data.removeprefix(BUILT_IN), False
    if name.endswith(SCALED):
        name, scaled = name.removesuffix(SCALED), True
    if name not in TABLES:
        raise UsageError(f"{data}: unknown table (known: {', '.join(TABLES)})")
    found = getattr(datasets, f"load_{name}")()
    values = found.data.astype(np.float32)
    if scaled:
        spread = values.std(axis=0)
        values = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1)
    n = len(values)
    return Samples(
        ids=np.array([str(i) for i in range(n)], dtype=object),
        labels=found.target.astype(np.int64),
        classes=tuple(str(c) for c in found.target_names),
        split=np.zeros(n, dtype=np.int8),
        content=FeatureArray(values, np.arange(n, dtype=np.int64)),
        name=name,
        source=data,
    )


def _split(labels: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int8]:
    """Nearly a third of each class for the test, drawn by the seed."""
    rng = np.random.default_rng([seed, 3])
    split = np.zeros(len(labels), dtype=np.int8)
    for c in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == c))
        split[rows[: round(TEST_SHARE * len(rows))]] = 2
    return split
