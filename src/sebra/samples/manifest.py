"""A table with one row per sample: CSV or parquet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np

from sebra.errors import UsageError
from sebra.samples.levels import (
    as_attribute,
    encode_labels,
    encode_split,
    single_values,
    text_column,
)
from sebra.samples.parquet import read_parquet
from sebra.samples.table import Attribute, Content, FeatureArray, ImageFiles, Samples, Texts

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = {".csv", ".tsv", ".parquet"}
RESERVED = ("path", "text", "text_b", "label", "id", "split")


def manifest_of(data: str) -> tuple[Path, dict[str, str]] | None:
    """The file and the names of its columns of `x.csv` or `x.csv?label=species`; None if neither.

    Our name of a column stands before the file's own.
    """
    path, _, query = (data, "", "") if os.path.exists(data) else data.rpartition("?")
    file = Path(path or query).expanduser()
    if file.suffix.lower() not in SUFFIXES or not file.is_file():
        return None
    return file, dict(parse_qsl(query)) if path else {}


def read_manifest(path: Path, columns: Mapping[str, str]) -> Samples:
    """`path` or `text` (and `text_b`), `label`, optional `id` and `split`; the rest: attributes.

    Without `path` and `text` columns of numbers are features, and columns of words attributes.
    """
    base = Path(os.path.abspath(path)).parent
    table = renamed(_read_table(path, columns), columns, str(path))
    return samples_of(table, str(path), base, path.stem)


def read_contents(path: Path, columns: Mapping[str, str]) -> tuple[Any, Content]:
    """Ids and contents alone: nothing else of the table is looked at."""
    table = renamed(_read_table(path, columns), columns, str(path))
    table.columns = [str(c) for c in table.columns]
    if table.empty:
        raise UsageError(f"{path}: has no rows")
    base = Path(os.path.abspath(path)).parent
    return _ids(table, str(path)), _content(table, str(path), base)


def renamed(table: pd.DataFrame, columns: Mapping[str, str], where: str) -> pd.DataFrame:
    """The table with our names of columns; one that had such a name becomes `<name>_column`."""
    for ours, own in columns.items():
        if ours not in RESERVED:
            raise UsageError(f"{where}: no column is called {ours!r} ({', '.join(RESERVED)} are)")
        if own not in table.columns:
            listed = ", ".join(map(str, table.columns))
            raise UsageError(f"{where}: no column {own!r} (columns: {listed})")
    aside = {ours: f"{ours}_column" for ours, own in columns.items() if own != ours}
    return table.rename(columns={**aside, **{own: ours for ours, own in columns.items()}})


def samples_of(table: pd.DataFrame, where: str, base: Path, name: str) -> Samples:
    """The samples of a table; `where` begins messages, `base` is where its paths begin."""
    columns = [str(c) for c in table.columns]
    table.columns = columns
    if len(set(columns)) < len(columns):
        twice = next(c for c in columns if columns.count(c) > 1)
        raise UsageError(f"{where}: column {twice!r} occurs twice")
    if "label" not in columns:
        raise UsageError(
            f"{where}: no column 'label' (columns: {', '.join(columns)}); "
            "name yours as in x.csv?label=species"
        )
    if table.empty:
        raise UsageError(f"{where}: has no rows")
    labels, classes = encode_labels(_values(table, "label", where), where, "label")
    split = np.zeros(len(table), dtype=np.int8)
    if "split" in columns:
        split = encode_split(_values(table, "split", where), where)
    content = _content(table, where, base)
    features = content.names if isinstance(content, FeatureArray) else ()
    return Samples(
        ids=_ids(table, where),
        labels=labels,
        classes=classes,
        split=split,
        content=content,
        attributes=_attributes(table.drop(columns=list(features))),
        name=name,
    )


def _read_table(path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd

    if path.suffix.lower() == ".parquet":
        return read_parquet(path)
    try:
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        return pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            # "NA" or "null" may be a class; only an empty cell is a missing one.
            keep_default_na=False,
            na_values=[""],
            dtype={columns.get(c, c): str for c in ("path", "text", "text_b", "id")},
        )
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # pandas' and pyarrow's complaints about the content
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"{path}: not a readable table ({reason})") from error


def _content(table: pd.DataFrame, where: str, base: Path) -> Content:
    if "path" in table.columns and "text" in table.columns:
        raise UsageError(f"{where}: has both 'path' and 'text', keep one of them")
    if "path" in table.columns:
        names = text_column(list(table["path"]), where, "path")
        return ImageFiles(tuple(base / name for name in names))
    if "text" in table.columns:
        first = text_column(list(table["text"]), where, "text")
        if "text_b" not in table.columns:
            return Texts(first)
        return Texts(first, text_column(list(table["text_b"]), where, "text_b"))
    numbers = table.select_dtypes("number").drop(columns=list(RESERVED), errors="ignore")
    if numbers.shape[1]:
        values = numbers.to_numpy(np.float32, na_value=np.nan)
        rows = np.arange(len(values), dtype=np.int64)
        return FeatureArray(values, rows, tuple(map(str, numbers.columns)))
    columns = ", ".join(table.columns)
    raise UsageError(
        f"{where}: no column 'path' or 'text', and none of numbers (columns: {columns}); "
        "name yours as in x.csv?text=review"
    )


def _ids(table: pd.DataFrame, where: str) -> Any:
    for column in ("id", "path"):
        if column in table.columns:
            texts = text_column(list(table[column]), where, column)
            return np.array(texts, dtype=object)
    return np.array(list(map(str, range(len(table)))), dtype=object)


def _attributes(table: pd.DataFrame) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for name in table.columns:
        if name not in RESERVED:
            try:
                attribute = as_attribute(name, _values(table, name))
            except UsageError:  # lists and tables are not attributes
                continue
            if attribute is not None:
                found[name] = attribute
    return found


def _values(table: pd.DataFrame, name: str, where: str = "") -> Any:
    """The column as a plain array: numbers stay numbers, all else becomes text."""
    import pandas as pd

    column = table[name]
    if pd.api.types.is_bool_dtype(column) and not column.isna().any():
        return column.to_numpy(dtype=bool)
    if pd.api.types.is_numeric_dtype(column):
        if not column.isna().any():
            return column.to_numpy()
        return column.to_numpy(dtype=float, na_value=np.nan)
    return np.array(single_values(column.astype(object), where, name), dtype=object)
