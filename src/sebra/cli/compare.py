"""`sebra compare`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table

EXAMPLE = "Example: sebra compare mine.csv runs/debiased photos/ --out compare.html"
_Side = Annotated[
    str,
    typer.Argument(
        help="A run folder, or a model trained elsewhere: predictions.csv or an .onnx file.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    app.command("compare", epilog=EXAMPLE)(compare)


def compare(
    first: _Side,
    second: _Side,
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Where to compare them [default: the run's data]."),
    ] = None,
    ranking: Annotated[
        str | None,
        typer.Option("--ranking", metavar="RUN", help="Whose patterns to measure models by."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write an HTML page here.")
    ] = None,
    device: o.Device = "auto",
    min_group: Annotated[
        int, typer.Option("--min-group", help="Smaller test groups are never the worst group.")
    ] = 20,
    as_json: o.Json = False,
) -> None:
    """Put two models or two rankings side by side: what got better, what got worse, for whom."""
    from pathlib import Path

    from sebra.showing.compare import write_comparison
    from sebra.values import require
    from sebra.workflows.compare import compare as run_compare

    require("--min-group", min_group)
    page = None if out is None else Path(o.writable_file(out))
    found, samples = run_compare(first, second, data, ranking, device, min_group, Bars())
    if page is not None:
        write_comparison(found, samples, page)
        found["page"] = str(page)
    emit(found, as_json)
    if not as_json:
        show(found)
        if page is not None:
            line(f"page: {page}")


def show(found: Mapping[str, Any]) -> None:
    """The table on the terminal."""
    from sebra.showing.compare import rows_of, what

    rows = [[name, *values] for _, part in rows_of(found) for name, *values in part]
    table(what(found), ["", "first", "second", "change"], rows)
    line(f"first: {found['names'][0]}, second: {found['names'][1]}")
    if found["kind"] == "models":
        changed = found["changed"]
        line(f"{changed['mended']['samples']} wrong before are right now, "
             f"{changed['broken']['samples']} right before are wrong now")  # fmt: skip
        if not found["patterns"]:
            line("by pattern: name a ranking with patterns (--ranking RUN)")
