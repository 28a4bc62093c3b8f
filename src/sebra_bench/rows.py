"""Rows on disk: one file per finished run, whole or not there at all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sebra.errors import UsageError
from sebra.runs.folder import RunFolder, clean

Row = dict[str, Any]
# Settings that were added when rows without them had been measured; their defaults change nothing.
ADDED = frozenset(
    {"average", "doubt", "enough", "hard", "negatives_from", "pairs", "start", "warmup"}
)
FOLDERS = ("rows", "rankings", "curves", "troubles", "neurons")  # of rows, in a run folder


def results_folder(out: str | None, command: str) -> RunFolder:
    """The folder for a benchmark, or the one whose rows it goes on with.

    A folder in which rows lie, also one level down, belongs to the command although the rest of
    its run is gone: rows are kept in version control, runs are not.
    """
    if out is not None:
        path = Path(out)
        if any(any(path.glob(f"{at}{name}/*.json")) for name in FOLDERS for at in ("", "*/")):
            return RunFolder(path)
    return RunFolder.create(out, command)


class Rows:
    """The finished runs in a folder. A row belongs to its `identity`: what decides its figures."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, slug: str, seed: int) -> Path:
        return self.path / f"{slug}-{seed}.json"

    def find(self, slug: str, seed: int, identity: Mapping[str, Any]) -> Row | None:
        """The finished row, or None; a row of another identity is refused with the difference."""
        file = self.file(slug, seed)
        if not file.is_file():
            return None
        try:
            row: Row = json.loads(file.read_text(encoding="utf-8"))
            theirs = row["identity"]
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{file}: not a row of a benchmark; move it away") from None
        difference = first_difference(theirs, clean(identity))
        if difference is not None:
            name, was, now = difference
            raise UsageError(
                f"{file}: was measured with another {name} ({was!r}, now {now!r}); "
                "choose another --out or move the row away"
            )
        return row

    def write(self, slug: str, seed: int, row: Mapping[str, Any]) -> Row:
        self.path.mkdir(parents=True, exist_ok=True)
        cleaned: Row = clean(row)
        text = json.dumps(cleaned, indent=1, ensure_ascii=False, allow_nan=False)
        RunFolder(self.path).write_text(self.file(slug, seed).name, text + "\n")
        return cleaned


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
