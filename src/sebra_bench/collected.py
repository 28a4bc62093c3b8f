"""Rows of earlier benchmarks, gathered from the JSONL files under a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sebra.debiasing.registry import method_class
from sebra.errors import UsageError
from sebra.ranking.registry import ranker_class
from sebra.runs.config import named_preset, settle
from sebra.runs.folder import clean
from sebra_bench.layouts import layout_of
from sebra_bench.plan import OWN_RANKER, parse_specs
from sebra_bench.results import Results, pooled
from sebra_bench.rows import ADDED, ROWS, Row, read_rows, settings_of
from sebra_bench.summary import Entry

_TOLD_GROUPS = frozenset({"groupdro", "dfr"})  # unless they work on a ranking
_NEEDED = frozenset({"method", "seed", "data", "identity"})


@dataclass(frozen=True)
class Section:
    """The results of one experiment on a data set, or on the variants of one."""

    where: str
    results: tuple[Results, ...]  # variants together come last

    @property
    def whole(self) -> Results:
        return self.results[-1]

    @property
    def rows(self) -> list[Row]:
        return [row for e in (*self.whole.models, *self.whole.rankings) for row in e.rows]


def collect(folder: Path) -> list[Section]:
    """All runs of methods and rankers under a folder, by the file that holds them.

    Rows of other kinds (of studies, noted by hand) are passed over, files of a protocol too: they
    have tables of their own (protocol_tables.py).
    """
    if not folder.is_dir():
        raise UsageError(f"FOLDER: {folder} is no folder; give one with rows of sebra bench")
    sections = []
    for file in sorted(folder.rglob("*.jsonl")):
        by_data: dict[str, list[Row]] = {}
        rows = read_rows(file)
        if any("protocol" in row for row in rows):
            continue
        for row in rows:
            if row.get("kind") in ("model", "ranking") and row.keys() >= _NEEDED:
                by_data.setdefault(str(row["data"]), []).append(row)
        sections += _sections(_name(file, folder), by_data)
    if not sections:
        raise UsageError(f"FOLDER: no rows under {folder}; sebra bench --out writes them")
    return sections


def _name(file: Path, folder: Path) -> str:
    named = file.parent if file.name == ROWS else file.with_suffix("")
    return named.relative_to(folder).as_posix() if named != folder else named.name


def _sections(where: str, by_data: dict[str, list[Row]]) -> list[Section]:
    """Variants of a data set (`celeba?split=0`, `?split=1`) in one file are one section."""
    kinds: dict[str, list[Results]] = {}
    for data, rows in by_data.items():
        kinds.setdefault(data.partition("?")[0], []).append(_results(data, rows))
    return [
        Section(where, (*found, *pooled([r.data for r in found], found)))
        for found in kinds.values()
    ]


def _results(data: str, rows: Sequence[Row]) -> Results:
    models = _entries([row for row in rows if row["kind"] == "model"], _model_label)
    rankings = _entries([row for row in rows if row["kind"] == "ranking"], lambda r: r["method"])
    return Results(data, layout_of(data), models, rankings)


def _entries(rows: Sequence[Row], label_of: Callable[[Row], str]) -> list[Entry]:
    """One entry per label, ERM first and then by name, its rows by seed."""
    entries: dict[str, Entry] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        label = label_of(row)
        told = label.partition("[")[0] in _TOLD_GROUPS and not row.get("ranker")
        entries.setdefault(label, Entry(label, told)).rows.append(row)
    return sorted(entries.values(), key=lambda e: (e.label != "erm", e.label))


def _model_label(row: Row) -> str:
    ranker = row.get("ranker")
    method = str(row["method"])
    return method if ranker in (None, OWN_RANKER) else f"{method} on {ranker}"


def weight(entries: Sequence[Entry]) -> tuple[Any, ...]:
    """What stands for a data set of several experiments: the entries of the greatest weight.

    Fine-tuned before frozen features; more runs of today's presets; more runs; the latest.
    """
    rows = [row for entry in entries for row in entry.rows]
    tuned = sum(row["network"]["mode"] != "features" for row in rows)
    latest = max((str(row["date"]) for row in rows), default="")
    return tuned > 0, sum(map(_of_today, rows)), len(rows), latest


def _of_today(row: Row) -> bool:
    """Whether a run with the row's preset, or with the best for its layout, has its settings."""
    if "settings" not in row:
        return True
    named = {named_preset(row.get("preset")), f"best/{layout_of(str(row['data']))}"}
    return any(_has_settings_of(row, preset) for preset in named)


def _has_settings_of(row: Row, preset: str | None) -> bool:
    try:
        config = _config_now(row, preset)
    except UsageError:  # a preset, a method or a setting that is no more
        return False
    ours, theirs = clean(settings_of(config)), row["settings"]
    compared = {*theirs, *ADDED} & vars(config).keys()  # without settings that are no more
    return all(ours.get(k) == theirs.get(k) for k in compared)


def _config_now(row: Row, preset: str | None) -> Any:
    (spec,) = parse_specs(str(row["method"]))
    class_of, role = (
        (ranker_class, "rank") if row["kind"] == "ranking" else (method_class, "debias")
    )
    kind = class_of(spec.name).config_class
    mode = row["network"]["mode"]
    return settle(kind, role, spec.name, mode, preset, spec.overrides).config
