"""`sebra evaluate`."""

from __future__ import annotations

from typing import Annotated

import typer

from sebra.cli import options as o
from sebra.cli.debias import show_evaluation
from sebra.cli.output import Bars, emit, line, table
from sebra.cli.rank import show_ranking

FORMATS = ("csv", "latex", "markdown")


def register(app: typer.Typer) -> None:
    app.command("evaluate", epilog="Example: sebra evaluate runs/photos photos/")(evaluate)


def evaluate(
    run: o.Run,
    data: o.Data,
    attributes: o.Attributes = None,
    device: o.Device = "auto",
    min_group: Annotated[
        int, typer.Option("--min-group", help="Smaller test groups are never the worst group.")
    ] = 20,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Seeds for PD, the performance disparity.")
    ] = 1,
    k: Annotated[
        int | None,
        typer.Option("--k", help="Samples per class and side for PD [default: min(100, n/2)]."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Also write the figures here.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Print the groups as csv, latex or markdown.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Measure a run on DATA: a model by groups and gaps, a ranking by its agreement with them."""
    from sebra.errors import UsageError
    from sebra.runs.folder import RunFolder
    from sebra.values import require
    from sebra_tools.evaluate import evaluate_run

    folder = RunFolder.open(run)
    if format_ not in (None, *FORMATS):
        raise UsageError(f"--format: {format_!r} is not one of {', '.join(FORMATS)}")
    for option, value in (("--seeds", seeds), ("--k", k), ("--min-group", min_group)):
        require(option, value)
    if format_ is not None and not folder.has("model.json"):
        raise UsageError("--format: only a model run has a table of groups")
    if out is not None:
        o.writable_file(out)
    found = evaluate_run(
        folder, data, o.split_names(attributes), device, min_group, seeds, k, Bars()
    )
    if out is not None:
        import json
        from pathlib import Path

        from sebra.runs.folder import clean
        from sebra.whole import write_text

        write_text(Path(out), json.dumps(clean(found), indent=2) + "\n")
    emit(found, as_json)
    if as_json:
        return
    if format_ is not None:
        _print_groups(found, format_)
        return
    if "evaluation" in found:
        show_evaluation(found["evaluation"], "model")
        _show_companions(found["evaluation"].get("companions", {}))
    else:
        show_ranking({**found, "samples": "all"})
    line(f"run: {folder.path}")


def _show_companions(companions: dict[str, dict[str, float]]) -> None:
    """The sets behind the gaps that DATA's options asked for."""
    if companions:
        rows = [[name, row["n"], row["accuracy"]] for name, row in companions.items()]
        table("beside the test split", ["set", "pictures", "accuracy"], rows)


def _print_groups(found: dict[str, object], format_: str) -> None:
    from sebra_tools import tables

    evaluation = found["evaluation"]
    assert isinstance(evaluation, dict)
    rows = [
        {"group": g["name"], "train": g["n_train"], "test": g["n_test"], "accuracy": g["accuracy"]}
        for g in evaluation.get("groups", [])
    ]
    renderers = dict(zip(FORMATS, (tables.csv_text, tables.latex, tables.markdown), strict=True))
    line(renderers[format_](rows).rstrip("\n"))
