"""Marks a person made in the report, read back: samples to leave out and labels to change."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.table import SPLITS, Samples
from sebra.samples.verdicts import MARKS, Verdicts
from sebra.whole import regular

COLUMNS = ("id", "mark", "label")
GUARD = "'"  # before a text that a spreadsheet would run as a formula


def apply_marks(samples: Samples, file: str) -> Samples:
    """The samples without those marked `drop`, with the new labels of those marked `relabel`.

    `file` is the CSV the report exports: `id`, `mark`, and `label` (the new one, for `relabel`); or
    verdicts, in which a suspect called `wrong` is dropped unless it has a mark of its own. Only
    training samples are dropped. `keep` and `spurious` change nothing here.
    """
    marks = read_marks(file)
    place = {str(name): row for row, name in enumerate(samples.ids.tolist())}
    number = {name: c for c, name in enumerate(samples.classes)}
    labels = samples.labels.copy()
    kept = np.ones(len(samples), dtype=np.bool_)
    for line, name, mark, label in marks:
        row = _found(name, place)
        if row is None:
            raise UsageError(
                f"--exclude: {file}, line {line}: no sample {_plain(name)!r} in {samples.source}; "
                "were the marks made for other data?"
            )
        if mark == "relabel":
            code = _found(label, number)
            if code is None:
                known = ", ".join(samples.classes[:10])
                raise UsageError(
                    f"--exclude: {file}, line {line}: {_plain(label)!r} is no class of "
                    f"{samples.source} (has: {known})"
                )
            labels[row] = code
        elif mark == "drop" and samples.split[row] == SPLITS.index("train"):
            kept[row] = False
    return replace(samples, labels=labels).take(np.flatnonzero(kept))


def read_marks(file: str) -> list[tuple[int, str, str, str]]:
    """Line number, id, mark and label of every row, as they stand in the file."""
    if Path(file).suffix.lower() == ".json":
        return _said(Verdicts.load(file))
    try:
        with regular(file).open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = next(reader, [])
            if list(header[:2]) != ["id", "mark"]:
                raise UsageError(
                    f"--exclude: {file}: expected the columns {','.join(COLUMNS)}, "
                    "as the report exports them"
                )
            label = header.index("label") if "label" in header else None
            return [_row(file, reader.line_num, row, label) for row in reader if row]
    except OSError as error:
        raise UsageError(f"--exclude: cannot read {file} ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--exclude: {file} is not a CSV file in UTF-8 ({error})") from None


def _said(verdicts: Verdicts) -> list[tuple[int, str, str, str]]:
    wrong = {
        i: {"verdict": "drop"} for i, e in verdicts.suspects.items() if e["verdict"] == "wrong"
    }
    marks = {**wrong, **verdicts.marks}
    found = ((key, entry["verdict"], entry.get("label", "")) for key, entry in marks.items())
    # As the report guards them in CSV.
    return [(n, GUARD + key, mark, GUARD + label) for n, (key, mark, label) in enumerate(found, 1)]


def _row(file: str, line: int, row: list[str], label: int | None) -> tuple[int, str, str, str]:
    mark = row[1].strip() if len(row) > 1 else ""
    if mark not in MARKS:
        known = ", ".join(MARKS)
        raise UsageError(f"--exclude: {file}, line {line}: mark {mark!r} is none of {known}")
    given = row[label] if label is not None and label < len(row) else ""
    return line, row[0], mark, given


def _found(text: str, known: dict[str, int]) -> int | None:
    """Without its guard first: the report guards what already starts with one, too. A file
    written by hand may hold the name as it is."""
    plain = _plain(text)
    return known[plain] if plain in known else known.get(text)


def _plain(text: str) -> str:
    return text.removeprefix(GUARD)
