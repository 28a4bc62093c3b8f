"""A maker of small annotated data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from sebra.samples.table import SPLITS, Attribute, FeatureArray, Samples


def _make(
    rows: Sequence[tuple[object, ...]],
    classes: Sequence[str],
    attributes: Mapping[str, Sequence[str]],
    fixed: Mapping[str, tuple[int, ...]] | None = None,
) -> Samples:
    """Rows are (count, split, class, value of each attribute or None)."""
    flat = [row[1:] for row in rows for _ in range(int(str(row[0])))]
    n = len(flat)
    columns = {}
    for k, (name, levels) in enumerate(attributes.items()):
        codes = [-1 if row[2 + k] is None else list(levels).index(str(row[2 + k])) for row in flat]
        columns[name] = Attribute(
            name, np.array(codes, dtype=np.int64), tuple(levels), (fixed or {}).get(name)
        )
    return Samples(
        ids=np.array([f"{i}" for i in range(n)], dtype=object),
        labels=np.array([list(classes).index(str(row[1])) for row in flat], dtype=np.int64),
        classes=tuple(classes),
        split=np.array([SPLITS.index(str(row[0])) for row in flat], dtype=np.int8),
        content=FeatureArray(np.zeros((n, 1), dtype=np.float32), np.arange(n)),
        attributes=columns,
        source="toy.csv",
    )


@pytest.fixture
def make_samples() -> Callable[..., Samples]:
    return _make
