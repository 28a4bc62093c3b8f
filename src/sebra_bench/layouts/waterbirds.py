"""Waterbirds as published: `metadata.csv` beside the species folders of images."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import ids_of, require_folder
from sebra.samples.layouts import NoOptions, layout
from sebra.samples.table import SPLITS, Attribute, ImageFiles, Samples

CLASSES = ("landbird", "waterbird")
PLACES = ("land", "water")
TABLE = "metadata.csv"
_CODES = {"y": len(CLASSES), "split": len(SPLITS), "place": len(PLACES)}


@layout(
    "waterbirds",
    "Waterbirds (metadata.csv): land and water birds, biased by the place behind them",
)
def read(path: Path, options: NoOptions) -> Samples:
    """Class: the bird. Attribute: the place, aligned where it suits the bird."""
    root = require_folder(path, "waterbirds")
    names, table = _table(root / TABLE)
    paths = [root / name for name in names]
    return Samples(
        ids=ids_of(paths, root),
        labels=table[:, 0],
        classes=CLASSES,
        split=table[:, 1].astype(np.int8),
        content=ImageFiles(tuple(paths)),
        attributes={"place": Attribute("place", table[:, 2], PLACES, aligned=(0, 1))},
        name="waterbirds",
    )


def _table(file: Path) -> tuple[list[str], np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """File names, and per row class, split and place as the published numbers."""
    if not file.is_file():
        raise UsageError(f"waterbirds: {file} is missing")
    names: list[str] = []
    codes: list[list[int]] = []
    with open(file, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        for column in ("img_filename", *_CODES):
            if column not in (reader.fieldnames or ()):
                raise UsageError(f"waterbirds: {file} has no column {column}")
        for row in reader:
            names.append(row["img_filename"])
            codes.append([_code(row, column, file, reader.line_num) for column in _CODES])
    return names, np.array(codes, dtype=np.int64).reshape(-1, len(_CODES))


def _code(row: dict[str, str], column: str, file: Path, line: int) -> int:
    allowed = range(_CODES[column])
    text = row[column] or ""
    if text not in {str(code) for code in allowed}:
        known = ", ".join(map(str, allowed))
        raise UsageError(f"waterbirds: {file} line {line}: {column} is {text!r}, not {known}")
    return int(text)
