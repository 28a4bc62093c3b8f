"""`sebra demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table
from sebra.cli.rank import show_ranking
from sebra.measuring.scores import worst_shown


def register(app: typer.Typer) -> None:
    app.command("demo", epilog="Example: sebra demo --seed 1")(demo)


def demo(
    out: o.Out = None,
    seed: o.Seed = 0,
    device: o.Device = "auto",
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """The whole story on the built-in data set: rank, debias, compare with ERM, report."""
    from sebra.runs.folder import RunFolder
    from sebra.workflows.prepared import Source
    from sebra_bench.demo import demo as run_demo

    folder = RunFolder.create(out, "demo", resume)
    source = Source(
        data=f"demo?seed={seed}", seed=seed, device=device, mode="features", backbone="random"
    )
    run = run_demo(source, folder, resume, Bars())
    emit(run.metrics, as_json)
    if not as_json:
        show_comparison(run.metrics["comparisons"])
        show_ranking(run.metrics)
        line(f"report: {run.report}")


def show_comparison(comparisons: Sequence[Mapping[str, Any]]) -> None:
    """Models side by side."""
    names = [c["name"].upper() if c["name"] == "erm" else c["name"] for c in comparisons]
    found = [c["evaluation"] for c in comparisons]
    gaps = list(found[0].get("gaps", {}))
    rows = [
        ["I.D. accuracy", *(e.get("id_accuracy") for e in found)],
        *([f"gap {k}", *(e["gaps"].get(k) for e in found)] for k in gaps),
        ["average gap", *(e.get("average_gap") for e in found)],
        ["worst group", *(worst_shown(e) for e in found)],
    ]
    table("on the balanced test split, in percent", ["", *names], rows)
