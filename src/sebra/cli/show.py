"""`sebra audit` and `sebra report`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table
from sebra.cli.rank import show_ranking

if TYPE_CHECKING:
    from sebra.workflows.prepared import Source
    from sebra.workflows.rank import RankOptions


@o.takes(chosen=o.make_audit_options, source=o.make_source)
def audit(
    chosen: RankOptions,
    source: Source,
    predictions: Annotated[
        str | None,
        typer.Option(
            "--predictions",
            metavar="FILE",
            help="A model to test for the patterns found: predictions.csv, an .onnx file or a run.",
        ),
    ] = None,
    out: o.Out = None,
    track: o.Track = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Rank DATA and write the report in one go: what most people want first."""
    from sebra.runs.folder import RunFolder
    from sebra.workflows.audit import audit as run_audit

    o.check_track(track)
    folder = RunFolder.create(out, "audit", resume)
    run = run_audit(source, chosen, folder, resume, Bars(), predictions)
    o.send_track(track, folder)
    emit(run.metrics, as_json)
    if not as_json:
        show_ranking(run.metrics)
        if "model" in run.metrics:
            show_leaning(run.metrics["model"])
        line(f"report: {run.metrics['report']}")


def show_leaning(model: Mapping[str, Any]) -> None:
    """Does the model lean on a pattern?"""
    rows = []
    for p in model["patterns"]:
        sides = (p["with_it"].get("accuracy"), p["against_it"].get("accuracy"))
        rows.append([p["stage"], *sides, p.get("drop"), "yes" if p.get("leans") else "not shown"])
    title = f"{model['name']}: {model['accuracy']:.1f} % right ({model['split']} split)"
    table(title, ["pattern", "with it", "against it", "drop", "leans on it"], rows)


def report(
    run: o.Run,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Where to write the report.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATA", help="Where the data is now, if it has moved."),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Write the HTML report of a run: one file that opens without a network."""
    from sebra.runs.folder import RunFolder
    from sebra.runs.meter import Meter
    from sebra.workflows.report import report_run
    from sebra.workflows.verdicts import said_of, verdicts_of

    meter, folder = Meter(), RunFolder.open(run)
    with meter.phase("report"):
        path = report_run(folder, None if out is None else o.writable_file(out), data)
        patterns = verdicts_of(folder).patterns
    emit({"report": str(path), "verdicts": patterns, **meter.result()}, as_json)
    if not as_json:
        for said in said_of(patterns):
            line(said)
        line(f"report: {path}")
