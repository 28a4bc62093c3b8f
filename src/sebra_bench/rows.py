"""Rows on disk: one JSONL file per experiment, a line per finished run."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sebra.errors import UsageError
from sebra.runs.folder import RunFolder, clean
from sebra.whole import json_of

Row = dict[str, Any]
# Settings that were added when rows without them had been measured; their defaults change nothing.
ADDED = frozenset({"average", "by", "doubt", "enough", "hard", "pairs", "partners", "start"})
ROWS = "rows.jsonl"  # in a run folder


def results_folder(out: str | None, command: str, resume: bool = False) -> RunFolder:
    """The folder for a benchmark, or the one whose rows it goes on with.

    A folder in which rows lie belongs to the command although the rest of its run is gone: rows
    are kept in version control, runs are not.
    """
    ours = out is not None and (Path(out) / ROWS).is_file()
    return RunFolder.create(out, command, resume, ours)


class Rows:
    """The finished runs of an experiment: one file, a JSON object per line.

    A row is found by its key (which run it is) and holds its `identity` (what decides its figures).
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._parsed: dict[str, Row] = {}  # by line; a benchmark looks for its rows again and again

    def find(self, key: Mapping[str, Any], identity: Mapping[str, Any]) -> Row | None:
        """The finished row, or None; a row of another identity is refused with the difference."""
        row = next((r for r in self._rows() if all(r.get(k) == v for k, v in key.items())), None)
        if row is None:
            return None
        difference = first_difference(row.get("identity", {}), clean(identity))
        if difference is not None:
            name, was, now = difference
            run = ", ".join(str(v) for v in key.values() if v is not None)
            raise UsageError(
                f"{self.file}: the row of {run} was measured with another {name} "
                f"({was!r}, now {now!r}); choose another --out or remove its line"
            )
        return row

    def _rows(self) -> list[Row]:
        return read_rows(self.file, self._parsed) if self.file.is_file() else []

    def add(self, row: Mapping[str, Any]) -> Row:
        """Appends a row; it is on disk when this returns."""
        cleaned: Row = clean(row)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(cleaned, ensure_ascii=False, allow_nan=False) + "\n"
        with open(self.file, "ab+") as file, _alone_with(file):
            _drop_half_a_line(file)
            file.write(line.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        return cleaned


def read_rows(file: Path, parsed: dict[str, Row] | None = None) -> list[Row]:
    """The rows of a file; a last line that was cut off while it was written is no row.

    Lines of `parsed` are not parsed again, and new ones are added to it.
    """
    parsed = {} if parsed is None else parsed
    *lines, rest = file.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip() and line not in parsed:
            parsed[line] = _row(file, number, line)
    rows = [parsed[line] for line in lines if line.strip()]
    try:
        return [*rows, _row(file, len(lines) + 1, rest)] if rest.strip() else rows
    except UsageError:
        return rows


def _row(file: Path, number: int, line: str) -> Row:
    try:
        row = json_of(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise UsageError(f"{file}, line {number}: not a row of a benchmark; remove the line")
    return row


def _drop_half_a_line(file: BinaryIO) -> None:
    """A run that was killed while it wrote leaves a line without an end."""
    written = file.seek(0, os.SEEK_END)
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    if whole < written:
        file.truncate(whole)


@contextmanager
def _alone_with(file: BinaryIO) -> Iterator[None]:
    """Runs side by side (`--jobs`) write one after the other."""
    try:
        import fcntl
    except ImportError:  # Windows, where a benchmark runs one job at a time
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed
    yield


def first_difference(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], prefix: str = ""
) -> tuple[str, Any, Any] | None:
    """Name and both values of the first entry in which two identities differ."""
    for name in sorted({*theirs, *ours}):
        was, now = theirs.get(name), ours.get(name)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            inner = first_difference(was, now, f"{prefix}{name}.")
            if inner is not None:
                return inner
        elif was != now:
            return f"{prefix}{name}", was, now
    return None


def settings_of(config: Any) -> dict[str, Any]:
    """The settings of a row, without those of `ADDED` that have their default.

    So rows that were measured before these settings existed stay valid.
    """
    values = dataclasses.asdict(config)
    defaults = {f.name: f.default for f in dataclasses.fields(config)}
    unsaid = {name for name in ADDED & set(values) if values[name] == defaults[name]}
    return present({k: v for k, v in values.items() if k not in unsaid})


def present(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None}
