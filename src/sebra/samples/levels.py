"""Columns of values as codes into sorted levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.files import split_code
from sebra.samples.table import Attribute, IntArray
from sebra.whole import utf8

_KINDS = "OUSbiuf"  # types of arrays that can name classes
MAX_LEVELS = 50  # a column with more distinct values is a measurement, not an attribute


def encode(values: npt.NDArray[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Codes and names of the distinct values, sorted (numbers as numbers); missing is -1."""
    present = ~missing(values)
    kept = values[present]
    if kept.dtype.kind == "f":
        kept = kept.astype(np.float64)  # a long double is no number of Python's
    if kept.dtype.kind in "OS":
        kept = np.array([as_text(v) for v in kept.tolist()], dtype=str)
    distinct, inverse = np.unique(kept, return_inverse=True)
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[present] = inverse
    return codes, tuple(level_name(value) for value in distinct.tolist())


def level_name(value: Any) -> str:
    """`3.0` and `3` are the same level: a column with gaps is read as floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return as_text(value)


def as_text(value: Any) -> str:
    """A value as a text that UTF-8 can hold, empty if missing; a list is a `TypeError`."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (Mapping, Sequence, np.ndarray)) and not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__}")
    absent = value is None or type(value).__name__ in ("NAType", "NaTType")
    return "" if absent or value != value else utf8(str(value))  # noqa: PLR0124 NaN


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


def require_levels(values: npt.NDArray[Any], where: str, column: str) -> None:
    """Refuses what cannot name a class: dates, complex numbers, records."""
    if values.dtype.kind not in _KINDS:
        raise UsageError(
            f"{where}: {column} must hold class names or whole numbers, has type {values.dtype}"
        )


def as_attribute(name: str, values: npt.NDArray[Any]) -> Attribute | None:
    """The column as an attribute; None where it has one value per row or nearly so."""
    if values.ndim != 1 or values.dtype.kind not in _KINDS:
        return None
    if values.dtype.kind == "f" and len(np.unique(values[:10_000])) > MAX_LEVELS + 1:
        return None  # a measurement; spares sorting a long column
    codes, levels = encode(values)
    return Attribute(name, codes, levels) if 1 <= len(levels) <= MAX_LEVELS else None


def encode_labels(
    values: npt.NDArray[Any], where: str, column: str
) -> tuple[IntArray, tuple[str, ...]]:
    """Labels as codes into sorted class names; every row must have one."""
    require_levels(values, where, column)
    codes, classes = encode(values)
    if (codes < 0).any():
        raise UsageError(f"{where}: {column} is missing in row {int(np.argmin(codes))}")
    if values.dtype.kind == "f" and not (np.isfinite(values) & (values == np.round(values))).all():
        raise UsageError(f"{where}: {column} must hold class names or whole numbers")
    return codes, classes


def encode_split(values: npt.NDArray[Any], where: str) -> npt.NDArray[np.int8]:
    """Splits given by name, or as 0, 1, 2 for train, val, test."""
    require_levels(values, where, "split")
    codes, names = encode(values)
    if (codes < 0).any():
        raise UsageError(f"{where}: split is missing in row {int(np.argmin(codes))}")
    table = [int(name) if name in ("0", "1", "2") else split_code(name, where) for name in names]
    return np.asarray(table, dtype=np.int8)[codes]


def text_column(values: Sequence[Any], where: str, column: str) -> tuple[str, ...]:
    """A column of texts; every row must have one."""
    texts = single_values(values, where, column)
    for row, text in enumerate(texts):
        if not text:
            raise UsageError(f"{where}: {column} is missing in row {row}")
        if column == "path" and "\0" in text:
            raise UsageError(f"{where}: {column} holds a NUL character in row {row}")
    return tuple(texts)


def single_values(values: Iterable[Any], where: str, column: str) -> list[str]:
    """Every value as a text, empty where it is missing; lists and tables are refused."""
    texts: list[str] = []
    for row, value in enumerate(values):
        try:
            texts.append(as_text(value))
        except TypeError as error:
            raise UsageError(f"{where}: {column} holds {error} in row {row}, not a text") from None
    return texts
