"""`sebra bench`: methods × seeds on one or several data sets, as the paper's table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sebra import __version__
from sebra.engine.session import ProgressSink
from sebra.errors import UsageError
from sebra.runs.folder import RunFolder
from sebra.workflows.prepared import Source
from sebra_bench import text_tables
from sebra_bench.paper_tables import by_layout, paper_tables
from sebra_bench.plan import BOTH, PROTOCOLS, BenchOptions, data_name, slug_of
from sebra_bench.results import Results, pooled, result_tables
from sebra_bench.runs import Plan, check_rows, check_settings, plan_runs, run_plan
from sebra_bench.studies import study_function
from sebra_bench.summary import metrics_of
from sebra_bench.tables import Table
from sebra_bench.together import Failed, run_together
from sebra_bench.workbench import Workbench

__all__ = ["BenchRun", "bench", "check_settings", "study", "write_tables"]


@dataclass
class BenchRun:
    """What a benchmark or a study found: tables to print, figures drawn, the metrics object."""

    metrics: dict[str, Any]
    tables: list[Table]
    figures: list[Path] = field(default_factory=list)


def bench(
    sources: Sequence[Source],
    options: BenchOptions,
    folder: RunFolder,
    progress: ProgressSink | None = None,
) -> BenchRun:
    """Runs what is missing, then writes `table.md`, `.csv`, `.tex` and `metrics.json`.

    All data sets are opened and all finished rows are checked before the first run starts.
    """
    began = time.monotonic()
    check_settings(options)
    _check_names(sources)
    benches = [Workbench(source, options, folder, progress) for source in sources]
    plans = [plan_runs(b) for b in benches]
    for b, plan in zip(benches, plans, strict=True):
        check_rows(b, plan)
    _write_config(folder, "bench", sources, options)
    failed: list[Failed] = [{} for _ in plans]
    if options.jobs > 1 or options.deadline is not None:
        until = None if options.deadline is None else began + options.deadline
        failed = run_together(benches, plans, progress, until)
    found, measured = [], []
    for plan, without in zip(plans, failed, strict=True):
        b = benches.pop(0)  # what it holds on the device goes when it is done
        found.append(list(_by_table(b, plan, without)))
        measured.append(b.meter.result())
    results: list[Results] = []
    for of_table in zip_longest(*found):
        names = [s.data for s, r in zip(sources, of_table, strict=True) if r is not None]
        given = [r for r in of_table if r is not None]
        results += [*given, *pooled(names, given)]
    run = BenchRun(
        _metrics(results, options, measured),
        [*result_tables(results), *paper_tables(by_layout(results))],
    )
    write_tables(folder, run.tables)
    run.metrics["run"] = str(folder.path)
    folder.write_metrics(run.metrics)
    return run


def _by_table(b: Workbench, plan: Plan, failed: Failed) -> Iterator[Results]:
    """What a plan gives: once, or for each of the two tables of the protocol."""
    if b.options.protocol != BOTH:
        yield run_plan(b, plan, failed)
        return
    for job in plan.jobs(b.options.seeds):
        if job not in failed:
            with suppress(UsageError):  # its table will say why there is no row
                job.run(b)
    for kind in PROTOCOLS if b.judges_have_groups else PROTOCOLS[:1]:
        b.options = replace(b.options, protocol=kind)
        yield run_plan(b, plan, failed)


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
        "rank_mode": options.rank_mode,
        "seeds": options.seeds,
        "preset": options.preset,
        "set": list(options.overrides),
        "min_group": options.min_group,
        **({"protocol": options.protocol} if options.protocol else {}),
    }
    folder.write_config(config)


def _check_names(sources: Sequence[Source]) -> None:
    """Rows name their data set, so each needs a name of its own."""
    names = [slug_of(data_name(s.data)) for s in sources]
    for source, name in zip(sources, names, strict=True):
        if names.count(name) > 1:
            raise UsageError(f"DATA: {source.data} and another data set are both called {name}")
