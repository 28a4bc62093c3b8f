"""Columns of values as codes into sorted levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.files import split_code
from sebra.samples.table import SPLITS, Attribute, IntArray

MAX_LEVELS = 50  # a column with more distinct values is a measurement, not an attribute


def encode(values: npt.NDArray[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Codes and names of the distinct values, sorted (numbers as numbers); missing is -1."""
    present = ~missing(values)
    kept = values[present]
    if kept.dtype.kind in "OS":
        kept = kept.astype(str)
    distinct, inverse = np.unique(kept, return_inverse=True)
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[present] = inverse
    return codes, tuple(level_name(value) for value in distinct.tolist())


def level_name(value: Any) -> str:
    """`3.0` and `3` are the same level: a column with gaps is read as floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a value is absent: NaN, None or an empty string."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values), dtype=np.bool_)
    if values.dtype == object:
        gaps = (v is None or v == "" or v != v for v in values.tolist())  # noqa: PLR0124 NaN
        return np.fromiter(gaps, np.bool_, len(values))
    if values.dtype.kind in "US":
        return np.asarray(values == values.dtype.type(), dtype=np.bool_)
    return np.zeros(len(values), dtype=np.bool_)


def as_attribute(name: str, values: npt.NDArray[Any]) -> Attribute | None:
    """The column as an attribute; None where it has one value per row or nearly so."""
    if values.ndim != 1 or values.dtype.kind not in "OUSbiuf":
        return None
    if values.dtype.kind == "f" and len(np.unique(values[:10_000])) > MAX_LEVELS + 1:
        return None  # a measurement; spares sorting a long column
    codes, levels = encode(values)
    return Attribute(name, codes, levels) if 1 <= len(levels) <= MAX_LEVELS else None


def encode_labels(
    values: npt.NDArray[Any], where: str, column: str
) -> tuple[IntArray, tuple[str, ...]]:
    """Labels as codes into sorted class names; every row must have one."""
    codes, classes = encode(values)
    if (codes < 0).any():
        raise UsageError(f"{where}: {column} is missing in row {int(np.argmin(codes))}")
    if values.dtype.kind == "f" and (values != np.round(values)).any():
        raise UsageError(f"{where}: {column} must hold class names or whole numbers")
    return codes, classes


def encode_split(values: npt.NDArray[Any], where: str) -> npt.NDArray[np.int8]:
    """Splits given by name, or as 0, 1, 2 for train, val, test."""
    codes, names = encode(values)
    if (codes < 0).any():
        raise UsageError(f"{where}: split is missing in row {int(np.argmin(codes))}")
    table = [_split_of(name, where) for name in names]
    return np.asarray(table, dtype=np.int8)[codes]


def text_column(values: Sequence[Any], where: str, column: str) -> tuple[str, ...]:
    """A column of texts; every row must have one."""
    array = np.asarray(values, dtype=object)
    gaps = missing(array)
    if gaps.any():
        raise UsageError(f"{where}: {column} is missing in row {int(np.argmax(gaps))}")
    return tuple(str(v) for v in array.tolist())


def _split_of(name: str, where: str) -> int:
    if name.isdigit() and int(name) < len(SPLITS):
        return int(name)
    return split_code(name, where)
