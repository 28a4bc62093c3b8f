"""`sebra bench`: methods × seeds on one or several data sets, as the paper's table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sebra import __version__
from sebra.debiasing.registry import method_class
from sebra.engine.session import ProgressSink
from sebra.errors import Interrupted, SebraError, UsageError
from sebra.measuring import tables as text_tables
from sebra.ranking.registry import ranker_class
from sebra.runs.config import parse_overrides
from sebra.runs.folder import RunFolder
from sebra.workflows.benching.paper import Paper
from sebra.workflows.benching.plan import (
    OWN_RANKER,
    BenchOptions,
    Spec,
    data_name,
    layout_of,
    slug_of,
    with_shared,
)
from sebra.workflows.benching.rows import Row
from sebra.workflows.benching.studies import study_function
from sebra.workflows.benching.summary import Entry, metrics_of
from sebra.workflows.benching.tables import Table, baseline_table, methods_table, rankings_table
from sebra.workflows.benching.workbench import Workbench, model_label
from sebra.workflows.prepare import Source

_USES_GROUPS = frozenset({"groups", "heldout_groups"})


@dataclass
class BenchRun:
    """What a benchmark or a study found: tables to print, figures drawn, the metrics object."""

    metrics: dict[str, Any]
    tables: list[Table]
    figures: list[Path] = field(default_factory=list)


@dataclass
class Results:
    """The runs on one data set (or on several variants of it)."""

    data: str
    layout: str | None
    models: list[Entry]
    rankings: list[Entry]


def bench(
    sources: Sequence[Source],
    options: BenchOptions,
    folder: RunFolder,
    progress: ProgressSink | None = None,
) -> BenchRun:
    """Runs what is missing, then writes `table.md`, `.csv`, `.tex` and `metrics.json`.

    All data sets are opened and all finished rows are checked before the first run starts.
    """
    check_settings(options)
    benches = [
        Workbench(source, options, place, progress)
        for source, place in zip(sources, _places(sources, folder), strict=True)
    ]
    plans = [plan_runs(b) for b in benches]
    for b, plan in zip(benches, plans, strict=True):
        _check_rows(b, plan)
    _write_config(folder, "bench", sources, options)
    found, measured = [], []
    for plan in plans:
        b = benches.pop(0)  # what it holds on the device goes when it is done
        found.append(_run_plan(b, plan))
        measured.append(b.meter.result())
    results = [*found, *_pooled(sources, found)]
    run = BenchRun(_metrics(results, options, measured), _tables(results))
    write_tables(folder, run.tables)
    run.metrics["run"] = str(folder.path)
    folder.write_metrics(run.metrics)
    return run


def study(
    name: str,
    source: Source,
    options: BenchOptions,
    folder: RunFolder,
    progress: ProgressSink | None = None,
) -> BenchRun:
    """Runs one study of the registry: a table, the figure drawn from it, and the metrics."""
    function = study_function(name)
    workbench = Workbench(source, options, folder, progress)
    _write_config(folder, f"bench study {name}", [source], options)
    found = function(workbench)
    metrics = {
        "version": __version__,
        "study": name,
        "data": workbench.name,
        "figures": [path.name for path in found.figures],
        **found.metrics,
        **workbench.meter.result(),
    }
    write_tables(folder, found.tables)
    metrics["run"] = str(folder.path)
    folder.write_metrics(metrics)
    return BenchRun(metrics, found.tables, found.figures)


def check_settings(options: BenchOptions) -> None:
    """Refuses unknown methods, rankers and settings before anything is read."""
    for spec in _methods(options):
        parse_overrides(method_class(spec.name).config_class, spec.overrides)
    for spec in _rankers(options):
        parse_overrides(ranker_class(spec.name).config_class, spec.overrides)


def _methods(options: BenchOptions) -> tuple[Spec, ...]:
    return with_shared(options.methods, options.method_overrides, method_class)


def _rankers(options: BenchOptions) -> tuple[Spec, ...]:
    """The rankers asked for, else those the methods take by themselves."""
    names = [OWN_RANKER]
    specs = options.rankers or tuple(Spec(n, n) for n in names)
    return with_shared(specs, options.ranker_overrides, ranker_class)


@dataclass(frozen=True)
class Plan:
    """What runs on one data set: methods with their rankers, and rankers of their own."""

    models: tuple[tuple[Spec, Spec | None], ...]
    rankers: tuple[Spec, ...]


def plan_runs(bench: Workbench) -> Plan:
    """Every method, once on each ranker asked for where it needs a ranking."""
    rankers = _rankers(bench.options)
    models: list[tuple[Spec, Spec | None]] = []
    for spec in _methods(bench.options):
        if "ranking" not in bench.needs(spec):
            models.append((spec, None))
        elif bench.options.rankers:
            models += [(spec, ranker) for ranker in rankers]
        else:
            models.append((spec, next(r for r in rankers if r.name == OWN_RANKER)))
    used = [r for r in rankers if any(r == ranker for _, ranker in models)]
    return Plan(tuple(models), rankers if bench.options.rankers else tuple(used))


def _check_rows(bench: Workbench, plan: Plan) -> None:
    for seed in range(bench.options.seeds):
        for spec, ranker in plan.models:
            bench.find_model(spec, seed, ranker)
        for ranker in plan.rankers:
            bench.find_ranking(ranker, seed)


def _run_plan(bench: Workbench, plan: Plan) -> Results:
    """Seed by seed, so that a stopped benchmark has every method once before any twice."""
    rankings = {r: Entry(r.label) for r in plan.rankers}
    models = {
        (spec, ranker): Entry(
            model_label(spec, ranker), uses_groups=bool(bench.needs(spec) & _USES_GROUPS)
        )
        for spec, ranker in plan.models
    }
    for seed in range(bench.options.seeds):
        for ranker, entry in rankings.items():
            _run_into(entry, bench, seed, partial(bench.ranking, ranker, seed))
        for (spec, chosen), entry in models.items():
            _run_into(entry, bench, seed, partial(bench.model, spec, seed, chosen))
    data = bench.prepared.source.data
    return Results(bench.name, layout_of(data), list(models.values()), list(rankings.values()))


def _run_into(entry: Entry, bench: Workbench, seed: int, run: Callable[[], Row]) -> None:
    """Adds a run to its entry; one that this data does not allow leaves its reason there."""
    if entry.reason and not entry.rows:
        return  # what this data lacks for one seed it lacks for all
    try:
        entry.rows.append(run())
    except Interrupted:
        raise
    except SebraError as error:
        why = re.sub(r"^--method \w+: ", "", str(error))
        entry.reason = f"seed {seed}: {why}" if entry.rows else why
        bench.progress.message(f"{entry.label} left out: {entry.reason}")


def _pooled(sources: Sequence[Source], found: Sequence[Results]) -> list[Results]:
    """Variants of one data set (`celeba:PATH?split=0`, `…?split=1`) taken together."""
    kinds: dict[str, list[Results]] = {}
    for source, results in zip(sources, found, strict=True):
        kinds.setdefault(source.data.partition("?")[0], []).append(results)
    return [
        Results(
            f"{data_name(base)}, {len(members)} variants together",
            members[0].layout,
            _joined([m.models for m in members]),
            _joined([m.rankings for m in members]),
        )
        for base, members in kinds.items()
        if len(members) > 1
    ]


def _joined(lists: Sequence[Sequence[Entry]]) -> list[Entry]:
    out: dict[str, Entry] = {}
    for entry in (e for entries in lists for e in entries):
        joined = out.setdefault(entry.label, Entry(entry.label, entry.uses_groups))
        joined.rows += entry.rows
        joined.reason = joined.reason or entry.reason
    return list(out.values())


def _tables(results: Sequence[Results]) -> list[Table]:
    out = []
    for r in results:
        paper = Paper(r.layout)
        table = methods_table(r.data, r.models, paper)
        table.remarks += _conditions([row for e in r.models for row in e.rows])
        out.append(table)
        out.append(baseline_table(f"{r.data}: against ERM", r.models))
        out.append(rankings_table(f"{r.data}: rankings", r.rankings, paper))
    return [table for table in out if table.shown]


def _conditions(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line per way in which rows were measured."""
    return list(dict.fromkeys(_condition(row) for row in rows))


def _condition(row: dict[str, Any]) -> str:
    network, hardware = row["network"], row["hardware"]
    size = f" at {network['image_size']} px" if "image_size" in network else ""
    machine = hardware.get("gpu") or f"{hardware['cpu']}, {hardware['threads']} threads"
    commit = f", commit {row['commit']}" if "commit" in row else ""
    mode = f"{network['mode']} mode, {network['backbone']}{size}, preset {row['preset']}"
    return f"measured in {mode}, on {machine}{commit}"


def _metrics(
    results: Sequence[Results], options: BenchOptions, measured: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "version": __version__,
        "seeds": options.seeds,
        "datasets": [{"data": r.data, **metrics_of(r.models, r.rankings)} for r in results],
        "seconds": {"total": max(m["seconds"]["total"] for m in measured)},
        "peak_memory_mib": max(m["peak_memory_mib"] for m in measured),
    }


def write_tables(folder: RunFolder, tables: Sequence[Table]) -> None:
    """`table.md`, `table.csv` (numbers, paper and difference in columns) and `table.tex`."""
    folder.write_text("table.md", "\n".join(t.markdown() for t in tables))
    rows = [{"table": t.title, **figures} for t in tables for figures in t.figures]
    folder.write_text("table.csv", text_tables.csv_text(rows))
    folder.write_text("table.tex", "\n".join(t.latex() for t in tables))


def _write_config(
    folder: RunFolder, command: str, sources: Sequence[Source], options: BenchOptions
) -> None:
    shared = {k: v for k, v in sources[0].to_dict().items() if k not in ("data", "seed")}
    config: dict[str, Any] = {
        "command": command,
        "version": __version__,
        "data": [source.data for source in sources],
        **shared,
        "methods": [spec.label for spec in options.methods],
        "rank_methods": [spec.label for spec in options.rankers],
        "rank_weights": options.rank_weights,
        "seeds": options.seeds,
        "preset": options.preset,
        "set": list(options.overrides),
        "min_group": options.min_group,
    }
    folder.write_config(config)


def _places(sources: Sequence[Source], folder: RunFolder) -> list[RunFolder]:
    """Where each data set's rows lie: the run folder, or a folder of its own in it."""
    if len(sources) == 1:
        return [folder]
    names = [slug_of(data_name(s.data)) for s in sources]
    for source, name in zip(sources, names, strict=True):
        if names.count(name) > 1:
            raise UsageError(f"DATA: {source.data} and another data set are both called {name}")
    return [RunFolder(folder.path / name) for name in names]
