"""A run folder: what a command leaves behind, written so that no file is ever half there."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sebra.errors import UsageError, reason
from sebra.processes import is_alive, is_main, require_one
from sebra.runs.lock import lock, unlock
from sebra.runs.seal import CHECKSUMS, read_sealed, seal
from sebra.samples.marks import GUARD
from sebra.samples.parquet import write_parquet
from sebra.samples.table import Fault
from sebra.whole import json_of, of_toml, utf8, write_text

SCHEMA = Path(__file__).with_name("metrics.schema.json")
CONFIG, METRICS, RANKING, HISTORY = (
    "config.toml",
    "metrics.json",
    "ranking.parquet",
    "history.parquet",
)
QUARANTINE, REPORT, CHECKPOINT = "quarantine.csv", "report.html", "checkpoint"
_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("command", "exclude", "method", "preset", "version"), str),
    **dict.fromkeys(("attributes", "overrides"), list),
    "data": (str, list),  # a benchmark has several
    "settings": dict,
}
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", GUARD)


class RunFolder:
    """Writes and reads the files of one run.

    `metrics.json` is the last file of a run: where it is, the others are of the same run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, out: str | None, command: str, resume: bool = False, ours: bool = False
    ) -> RunFolder:
        """The folder for a new run, or with `resume` the one to go on with; it is writable.

        ours: the files in it are known to be the command's. Of several processes only the main one
        leaves files: the others get a temporary folder, which is removed when they end. A process
        of another command that writes to the same folder is refused until this one is done.
        """
        if resume:
            require_one("--resume")
        if not is_main():
            return cls(_passing())
        path = Path(out) if out else (latest(command) if resume else None) or _fresh(command)
        try:
            if path.is_dir() and not (ours or _is_run(path)) and _holds_files(path):
                raise UsageError(f"--out: {path} holds other files; choose a new or empty folder")
            created = [p for p in (path / CHECKPOINT, path, *path.parents) if not p.exists()]
            folder = cls(path)
            # A run that fails before it wrote anything leaves no empty folder behind.
            weakref.finalize(folder, _remove_empty, created)
            path.mkdir(parents=True, exist_ok=True)
            weakref.finalize(folder, unlock, lock(path))
            probe = path / f".probe.{os.getpid()}.tmp"
            probe.write_bytes(b"")
            probe.unlink()
            for leftover in _leftovers(path):
                leftover.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            shown = f"{path!s:.200}"
            raise UsageError(f"--out: cannot write to {shown} ({reason(error)})") from None
        return folder

    @classmethod
    def open(cls, path: str) -> RunFolder:
        """An existing run."""
        if not os.path.isdir(path) or not _is_run(Path(path)):
            raise UsageError(f"{path}: not a run folder (no {CONFIG} in it)")
        return cls(Path(path))

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def write_text(self, name: str, text: str) -> Path:
        """Writes a file whole or not at all; what UTF-8 cannot hold is escaped."""
        return write_text(self.path / name, text)

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        self.write_text(METRICS, json.dumps(clean(metrics), indent=2, allow_nan=False) + "\n")
        seal(self.path, self.read_config() if self.has(CONFIG) else {})

    def write_patterns(self, patterns: list[Any]) -> None:
        text = json.dumps(clean({"patterns": patterns}), indent=2, allow_nan=False)
        self.write_text("patterns.json", text + "\n")

    def read_metrics(self) -> dict[str, Any]:
        if not self.has(METRICS):
            raise UsageError(f"{self.path}: no {METRICS}; the run is not finished")
        try:
            loaded = json_of(read_sealed(self.path, METRICS))
        except ValueError as error:
            raise UsageError(f"{self.path / METRICS}: not JSON ({error})") from None
        wrong = schema_faults(loaded)
        if wrong:
            raise UsageError(f"{self.path / METRICS}: not the metrics of a run ({wrong[0]})")
        return dict(loaded)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """The first file of a finished run; metrics of an earlier one go."""
        for name in (METRICS, CHECKSUMS):
            (self.path / name).unlink(missing_ok=True)
        self.write_text(CONFIG, to_toml(config))

    def read_config(self) -> dict[str, Any]:
        try:
            found = of_toml(read_sealed(self.path, CONFIG))
        except ValueError as error:
            raise UsageError(f"{self.path / CONFIG}: not TOML ({reason(error)})") from None
        for key, value in found.items():
            kind = _KINDS.get(key, object)
            several = value if kind is not object and isinstance(value, list) else []
            if not isinstance(value, kind) or not all(isinstance(v, str) for v in several):
                raise UsageError(
                    f"{self.path / CONFIG}: {key} = {value!r:.40} is not a valid {key}"
                )
        return found

    def write_history(self, rows: list[dict[str, Any]]) -> None:
        import pandas as pd

        write_parquet(self.path / HISTORY, pd.DataFrame(rows))

    def write_quarantine(self, faults: Iterable[Fault]) -> None:
        """`id`, `reason`; a text that a spreadsheet would run as a formula gets an apostrophe."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["id", "reason"])
        writer.writerows([as_cell(f.id), as_cell(f.reason)] for f in faults)
        self.write_text(QUARANTINE, text.getvalue())

    def read_quarantine(self) -> tuple[Fault, ...]:
        """The samples that the run could not read; none where it left no list."""
        if not self.has(QUARANTINE):
            return ()
        try:
            rows = list(csv.DictReader(io.StringIO(read_sealed(self.path, QUARANTINE), newline="")))
            return tuple(Fault(str(row["id"]), str(row["reason"])) for row in rows)
        except (KeyError, csv.Error) as error:
            raise UsageError(f"{self.path / QUARANTINE}: not a list of samples ({error})") from None


def schema_faults(metrics: Any) -> list[str]:
    """Where metrics do not hold to the schema that ships."""
    try:
        from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
    except ModuleNotFoundError:  # run from a checkout on a machine that lacks it
        return [] if isinstance(metrics, dict) else ["all: is no object"]
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    found = Draft202012Validator(schema).iter_errors(metrics)
    return [f"{'.'.join(map(str, e.absolute_path)) or 'all'}: {e.message[:120]}" for e in found]


def clean(value: Any) -> Any:
    """JSON-able: numpy scalars to Python's, absent figures (NaN) dropped, tuples to lists."""
    if isinstance(value, Mapping):
        pairs = ((str(k), clean(v)) for k, v in value.items())
        return {k: v for k, v in pairs if not isinstance(v, float) or math.isfinite(v)}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    if isinstance(value, str):
        return utf8(value)
    if hasattr(value, "item") and not isinstance(value, bytes):
        value = value.item()
    return value


def to_toml(config: Mapping[str, Any]) -> str:
    """TOML text of scalars, lists of scalars and one level of tables; None is left out.

    JSON's strings, numbers and lists are TOML's as well, apart from DEL, which JSON leaves bare.
    """

    def lines(values: Mapping[str, Any]) -> list[str]:
        plain = {k: v for k, v in values.items() if v is not None and not isinstance(v, Mapping)}
        return [f"{_toml_key(k)} = {_toml(v)}" for k, v in plain.items()]

    out = lines(config)
    for name, table in config.items():
        if isinstance(table, Mapping):
            out += ["", f"[{_toml_key(name)}]", *lines(table)]
    return "\n".join(out) + "\n"


def _toml_key(key: Any) -> str:
    text = str(key)
    return text if text.replace("_", "").isalnum() and text.isascii() else _toml(text)


def _toml(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "inf", "-inf": "-inf"}.get(str(value), "nan")
    text = json.dumps(clean(value), ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


def as_cell(text: str) -> str:
    text = utf8(text)
    return GUARD + text if text.startswith(_FORMULA_STARTS) else text


def _remove_empty(folders: list[Path]) -> None:
    """Innermost first, up to the first one that holds something."""
    for folder in folders:
        try:
            folder.rmdir()
        except (FileNotFoundError, ValueError):  # it was not made, or nothing can have its name
            continue
        except OSError:
            return


def _holds_files(path: Path) -> bool:
    ours = _leftovers(path)
    return any(entry not in ours for entry in path.iterdir())


def _leftovers(path: Path) -> set[Path]:
    """Temporary files (`.NAME.PID.tmp`) whose writer is no longer alive."""
    found = ((file, file.name.split(".")[-2]) for file in path.glob(".*.tmp"))
    return {file for file, pid in found if pid.isdigit() and not is_alive(int(pid))}


def _passing() -> Path:
    import atexit
    import shutil
    import tempfile

    path = Path(tempfile.mkdtemp(prefix="sebra-run-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file() or (path / CHECKPOINT).is_dir()


def _fresh(command: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{command}-{stamp}"
    number = 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{command}-{stamp}-{number}"
    return path


def latest(command: str) -> Path | None:
    """The unfinished run to go on with; None where there is none and it starts at the beginning."""
    begun = [p for n in (CHECKPOINT, CONFIG) for p in Path("runs").glob(f"{command}-*/{n}")]
    left = [p for p in begun if p.name == CHECKPOINT or not (p.parent / METRICS).is_file()]
    return max(left, key=lambda p: p.stat().st_mtime).parent if left else None
