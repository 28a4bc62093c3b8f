"""`sebra demo`, the whole story on the built-in data: rank, debias, compare with ERM, report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sebra import __version__
from sebra.engine.session import ProgressSink
from sebra.plugins import EXPLAINERS, plugins
from sebra.runs.folder import REPORT, RunFolder
from sebra.runs.meter import Meter
from sebra.showing.report import write_report
from sebra.workflows.debias import DebiasOptions, debias_prepared
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Source
from sebra.workflows.rank import (
    RankOptions,
    finish,
    identity_of,
    judge,
    open_session,
    rank_prepared,
    ranker_for,
    write_rank_run,
)
from sebra.workflows.report import report_input
from sebra.workflows.saliency import save_saliency


@dataclass
class DemoRun:
    """What the demo found."""

    metrics: dict[str, Any]
    report: Path


def demo(
    source: Source,
    folder: RunFolder,
    resume: bool = False,
    progress: ProgressSink | None = None,
    rank_method: str = "peel",
    method: str = "auto",
) -> DemoRun:
    """Ranks the demo set, trains ERM and a debiased model, and writes the report."""
    meter = Meter()
    options = {"rank_method": rank_method, "method": method}
    identity = identity_of("demo", source, options)
    session = open_session(folder, identity, resume, progress)
    with session.stoppable():
        with meter.phase("open"):
            prepared = prepare(source, session, meter)
            ranker, settled = ranker_for(RankOptions(rank_method), prepared.mode)
        ranked = rank_prepared(prepared, ranker, session, meter)
        judge(ranked, ranker, session, meter)
        runs = {}
        for name in ("erm", method):
            session.enter(name)
            with meter.phase("debias"):
                runs[name] = debias_prepared(
                    prepared, DebiasOptions(name), session, meter, ranked.ranking
                )
            session.leave()
    comparisons = [
        {"name": name, "evaluation": run.metrics["evaluation"]} for name, run in runs.items()
    ]
    metrics: dict[str, Any] = {
        **ranked.metrics,
        "command": "demo",
        "evaluation": runs[method].metrics["evaluation"],
        "selection": runs[method].metrics["selection"],
        "comparisons": comparisons,
        "notes": list(session.notes),
        "run": str(folder.path),
        "report": str(folder.path / REPORT),
    }
    with meter.phase("write"):
        trained, by = runs[method].settled.tables(), settled.tables("rank")
        by["rank"] = {"method": rank_method, **by["rank"]}
        write_rank_run(folder, ranked, {**identity, **trained, **by, "version": __version__})
        find, state = plugins(EXPLAINERS)["places"].load(), ranked.metrics["verdict"]["state"]
        maps = find(ranked.ranking, prepared, meter, state, ranker.names_patterns)
        save_saliency(folder.path, maps)
        runs[method].model.save(folder.path)
    metrics.update(meter.result())
    with meter.phase("report"):
        shown = report_input(folder, prepared.samples, folder.read_config(), metrics, comparisons)
        report = write_report(shown, folder.path / REPORT)
    finish(metrics, meter, folder)
    session.close()
    return DemoRun(metrics, report)
