"""`sebra bench results`: one page of all rows under a folder, with the paper's tables first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sebra.debiasing.registry import method_class
from sebra.errors import UsageError
from sebra.ranking.registry import ranker_class
from sebra.runs.config import build_config
from sebra.runs.folder import clean
from sebra.workflows.presets import layout_of, named_preset
from sebra_bench.paper_tables import NAMES, paper_tables
from sebra_bench.plan import OWN_RANKER, parse_specs
from sebra_bench.results import Results, pooled, result_tables
from sebra_bench.rows import Row, first_difference, settings_of
from sebra_bench.summary import Entry

ROWS, RANKINGS = "rows", "rankings"
_TOLD_GROUPS = frozenset({"groupdro", "dfr"})  # unless they work on a ranking


@dataclass(frozen=True)
class Section:
    """The results of one folder, or of the variants of a data set that lie side by side."""

    where: str
    results: tuple[Results, ...]  # variants together come last

    @property
    def whole(self) -> Results:
        return self.results[-1]

    @property
    def rows(self) -> list[Row]:
        return [row for e in (*self.whole.models, *self.whole.rankings) for row in e.rows]


def results_page(folder: Path, command: str) -> tuple[str, int]:
    """The page as Markdown, and how many rows are in it. `command` is what wrote it."""
    sections = collect(folder)
    chosen = _chosen(sections)
    standing = {layout: results for layout, (results, _) in chosen.items()}
    parts = [_head(command, folder, sections, {k: where for k, (_, where) in chosen.items()})]
    parts += [table.markdown() for table in paper_tables(standing, everything=True)]
    for section in sections:
        parts.append(f"## {section.where}\n\n{_when(section.rows)}\n")
        parts += [table.markdown() for table in result_tables(section.results)]
    return "\n".join(parts), sum(len(section.rows) for section in sections)


def collect(folder: Path) -> list[Section]:
    """All rows under a folder, by where they lie."""
    if not folder.is_dir():
        raise UsageError(f"FOLDER: {folder} is no folder; give one with rows of sebra bench")
    places = sorted({p.parent.parent for kind in (ROWS, RANKINGS) for p in _rows_in(folder, kind)})
    if not places:
        raise UsageError(f"FOLDER: no rows under {folder}; sebra bench --out writes them")
    groups: dict[tuple[Path, str], dict[Path, Results]] = {}
    for place in places:
        results = _read(place)
        base, _, variant = results.data.partition("?")
        key = (place.parent, base) if variant else (place, "")
        groups.setdefault(key, {})[place] = results
    sections = [s for (beside, _), found in groups.items() for s in _sections(beside, found)]
    return [Section(_name(place, folder), results) for place, results in sections]


def _sections(beside: Path, found: dict[Path, Results]) -> list[tuple[Path, tuple[Results, ...]]]:
    """Variants of a data set that lie side by side are one; the same one twice is two runs."""
    names = [r.data for r in found.values()]
    if len(set(names)) == len(names) > 1:
        results = list(found.values())
        return [(beside, (*results, *pooled(names, results)))]
    return [(place, (results,)) for place, results in found.items()]


def _name(place: Path, folder: Path) -> str:
    return place.relative_to(folder).as_posix() if place != folder else place.name


def _rows_in(folder: Path, kind: str) -> Iterable[Path]:
    return folder.rglob(f"{kind}/*.json")


def _read(place: Path) -> Results:
    models = _entries(place / ROWS, _model_label)
    rankings = _entries(place / RANKINGS, lambda row: str(row["method"]))
    data = str((models or rankings)[0].rows[0]["data"])
    return Results(data, layout_of(data), models, rankings)


def _entries(folder: Path, label_of: Callable[[Row], str]) -> list[Entry]:
    """One entry per label, ERM first and then by name, its rows by seed."""
    rows = [_row(file) for file in sorted(folder.glob("*.json"))]
    entries: dict[str, Entry] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        label = label_of(row)
        told = label.partition("[")[0] in _TOLD_GROUPS and not row.get("ranker")
        entries.setdefault(label, Entry(label, told)).rows.append(row)
    return sorted(entries.values(), key=lambda e: (e.label != "erm", e.label))


def _row(file: Path) -> Row:
    try:
        row: Row = json.loads(file.read_text(encoding="utf-8"))
        if not {"method", "seed", "data", "identity"} <= row.keys():
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise UsageError(f"{file}: not a row of a benchmark; move it away") from None
    return row


def _model_label(row: Row) -> str:
    ranker = row.get("ranker")
    method = str(row["method"])
    return method if ranker in (None, OWN_RANKER) else f"{method} on {ranker}"


def _chosen(sections: Sequence[Section]) -> dict[str, tuple[Results, str]]:
    """For each of the paper's data sets, the results that stand beside its figures."""
    out = {}
    for layout in NAMES:
        own = [s for s in sections if s.whole.layout == layout]
        if not own:
            continue
        models = max(own, key=lambda s: _weight(s.whole.models))
        rankings: dict[str, tuple[tuple[Any, ...], Entry, str]] = {}
        for section in own:
            for entry in section.whole.rankings:
                candidate = (_weight([entry]), entry, section.where)
                if entry.label not in rankings or candidate[0] > rankings[entry.label][0]:
                    rankings[entry.label] = candidate
        entries = [entry for _, entry, _ in rankings.values()]
        places = dict.fromkeys([models.where, *(where for _, _, where in rankings.values())])
        chosen = Results(models.whole.data, layout, models.whole.models, entries)
        out[layout] = chosen, ", ".join(places)
    return out


def _weight(entries: Sequence[Entry]) -> tuple[Any, ...]:
    """Fine-tuned before frozen features; more runs of today's presets; more runs; the latest."""
    rows = [row for entry in entries for row in entry.rows]
    tuned = sum(row["network"]["mode"] != "features" for row in rows)
    latest = max((row["date"] for row in rows), default="")
    return tuned > 0, sum(map(_of_today, rows)), len(rows), latest


def _of_today(row: Row) -> bool:
    """Whether a run with the row's preset would have the row's settings."""
    if "settings" not in row:
        return True
    try:
        ours = _settings_now(row)
    except UsageError:  # a preset, a method or a setting that is no more
        return False
    return first_difference(row["settings"], clean(ours)) is None


def _settings_now(row: Row) -> dict[str, Any]:
    (spec,) = parse_specs(str(row["method"]))
    class_of, role = (
        (ranker_class, "rank") if row["kind"] == "ranking" else (method_class, "debias")
    )
    mode, preset = row["network"]["mode"], named_preset(row.get("preset"))
    kind = class_of(spec.name).config_class
    return settings_of(build_config(kind, role, spec.name, mode, preset, spec.overrides))


def _head(command: str, folder: Path, sections: Sequence[Section], chosen: dict[str, str]) -> str:
    count = sum(len(section.rows) for section in sections)
    lines = [
        "# Results",
        "",
        f"Made from {count} rows under `{folder.as_posix()}` by `{command}`; not to be edited.",
        "Mean ± standard deviation over runs. A dash: not measured here.",
        "",
        "## The paper's tables",
        "",
        "Of several folders with runs on a data set, these tables show the fine-tuned one with the "
        "most runs of today's presets:",
        "",
        *(f"- {NAMES[layout]}: {where}" for layout, where in chosen.items()),
        "",
    ]
    return "\n".join(lines)


def _when(rows: Sequence[Row]) -> str:
    days = sorted({str(row["date"])[:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{len(rows)} rows, {span}."
