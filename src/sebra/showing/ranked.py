"""A ranking's table as arrays, joined with the samples it speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sebra.samples.table import BoolArray, IntArray, Samples, alignment

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
UNKNOWN = -1
FOLLOWS = 0.5  # a sample follows a discovered bias where its stage column is above this


@dataclass(frozen=True)
class Ranked:
    """One entry per row of the table; `orders[c]` are the rows of class c, most spurious first.

    `rows[i]` is the row of table row `i` in `samples`, -1 where the samples do not hold it.
    """

    ids: list[str]
    labels: IntArray
    classes: tuple[str, ...]
    rank: IntArray
    bucket: IntArray
    spuriosity: Array
    stages: Mapping[str, Array]
    noise: Array | None
    suggested: list[str] | None
    why: list[str] | None
    orders: tuple[IntArray, ...]
    samples: Samples
    rows: IntArray

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def attributes(self) -> dict[str, list[str]]:
        """Value of each attribute per row, "" where it is not known."""
        out = {}
        for name, attribute in self.samples.attributes.items():
            levels = np.array([*attribute.levels, ""], dtype=object)
            codes = np.where(self.rows >= 0, attribute.codes[self.rows], UNKNOWN)
            out[name] = levels[codes].tolist()
        return out

    def aligned(self) -> tuple[tuple[str, ...], BoolArray, BoolArray]:
        """Attribute names, the rows x attributes table of alignment, and the rows it holds for."""
        names, table = alignment(self.samples)
        known = self.rows >= 0
        for attribute in self.samples.attributes.values():
            known &= attribute.codes[self.rows] >= 0
        return names, table[self.rows], known


def ranked_of(table: pd.DataFrame, samples: Samples) -> Ranked:
    """Reads the columns of `ranking.parquet` and finds each id among the samples."""
    names = table["label"].astype(str)
    # The data set's own order of classes where it has them all, as every other command prints it.
    present = set(names.unique())
    classes = tuple(c for c in samples.classes if c in present)
    if len(classes) < len(present):
        classes = tuple(sorted(present))
    number = {name: c for c, name in enumerate(classes)}
    labels = np.array([number[n] for n in names.tolist()], dtype=np.int64)
    rank = table["rank"].to_numpy(dtype=np.int64)
    ids = [str(i) for i in table["id"].tolist()]
    row_of = {str(name): row for row, name in enumerate(samples.ids.tolist())}
    order = np.lexsort((rank, labels))
    ends = np.searchsorted(labels[order], np.arange(len(classes) + 1))
    return Ranked(
        ids=ids,
        labels=labels,
        classes=classes,
        rank=rank,
        bucket=table["bucket"].to_numpy(dtype=np.int64),
        spuriosity=table["spuriosity"].to_numpy(dtype=np.float64),
        stages={
            str(c): table[c].to_numpy(dtype=np.float64)
            for c in table.columns
            if str(c).startswith("stage_") and len(table)
        },
        noise=table["noise"].to_numpy(dtype=np.float64)
        if "noise" in table and len(table)
        else None,
        suggested=_texts(table, "suggested"),
        why=_texts(table, "why"),
        orders=tuple(order[a:b].astype(np.int64) for a, b in pairwise(ends)),
        samples=samples,
        rows=np.array([row_of.get(i, UNKNOWN) for i in ids], dtype=np.int64),
    )


def _texts(table: pd.DataFrame, column: str) -> list[str] | None:
    if column not in table:
        return None
    return [str(v) for v in table[column].fillna("").tolist()]
