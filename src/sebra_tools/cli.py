"""`sebra compare`, `sebra check`, `sebra review`, `sebra verify` and `sebra export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table
from sebra_tools import check_cli, data_cli, evaluate_cli, predict_cli

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
    data_cli.register()
    evaluate_cli.register(app)
    predict_cli.register(app)
    check_cli.register(app)
    app.command("review", epilog="Example: sebra review runs/photos")(review)
    app.command("verify", epilog="Example: sebra verify runs/photos")(verify)
    app.command("export", epilog="Example: sebra export runs/photos --format onnx")(export)


def compare(
    first: _Side,
    second: _Side,
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Where to compare them [default: the run's data]."),
    ] = None,
    ranking: Annotated[
        str | None,
        typer.Option(
            "--ranking",
            metavar="RUN",
            help="The ranking whose patterns the models are measured by.",
        ),
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

    from sebra.values import require
    from sebra_tools.compare import compare as run_compare
    from sebra_tools.comparison_page import write_comparison

    require("--min-group", min_group)
    page = None if out is None else Path(o.writable_file(out))
    found, samples = run_compare(first, second, data, ranking, device, min_group, Bars())
    if page is not None:
        write_comparison(found, samples, page)
        found["page"] = str(page)
    emit(found, as_json)
    if not as_json:
        _show(found)
        if page is not None:
            line(f"page: {page}")


def _show(found: Mapping[str, Any]) -> None:
    """The table on the terminal."""
    from sebra_tools.comparison_page import rows_of, what

    rows = [[name, *values] for _, part in rows_of(found) for name, *values in part]
    table(what(found), ["", "first", "second", "change"], rows)
    line(f"first: {found['names'][0]}, second: {found['names'][1]}")
    if found["kind"] == "models":
        changed = found["changed"]
        line(f"{changed['mended']['samples']} wrong before are right now, "
             f"{changed['broken']['samples']} right before are wrong now")  # fmt: skip
        if not found["patterns"]:
            line("by pattern: name a ranking with patterns (--ranking RUN)")


def review(
    run: o.Run,
    port: Annotated[
        int, typer.Option("--port", help="On this machine alone; 0 takes any that is free.", min=0)
    ] = 0,
    browser: Annotated[
        bool, typer.Option(help="Open the page in the browser, not just print its address.")
    ] = True,
    as_json: o.Json = False,
) -> None:
    """Open the report of RUN as an app on this machine: verdicts and marks are saved as given.

    Say of each pattern whether it is a shortcut, meant or unsure, and of each suspect whether its
    label is wrong or right. RUN/verdicts.json keeps it, and `sebra debias --verdicts` acts on it.
    Ctrl-C ends it; nothing is lost.
    """
    import signal
    import webbrowser

    from sebra.errors import Interrupted
    from sebra.runs.folder import RunFolder
    from sebra_tools.review import Review

    folder = RunFolder.open(run)
    with Review(folder, port) as server:
        emit({"address": server.address, "verdicts": str(server.file)}, as_json)
        if not as_json:
            line(f"review: {server.address}")
            line(f"verdicts: {server.file} (Ctrl-C ends the review)")
        if browser:
            webbrowser.open(server.address)
        # A shell that starts it in the background lets it ignore Ctrl-C's signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            server.serve_forever()
        except (KeyboardInterrupt, Interrupted):
            return


def verify(run: o.Run, as_json: o.Json = False) -> None:
    """Check that RUN is still what was written: files, checksums, schema, samples, configuration.

    Exits with status 1 where something is wrong.
    """
    from sebra.runs.folder import RunFolder
    from sebra_tools.verify import verify as run_verify

    found = run_verify(RunFolder.open(run))
    emit(found, as_json)
    if not as_json:
        for fault in found["faults"]:
            line(f"wrong: {fault}")
        for note in found["notes"]:
            line(f"note: {note}")
        line(f"{run}: {'damaged' if found['faults'] else 'as it was written'}")
    if found["faults"]:
        raise typer.Exit(1)


def export(
    run: o.Run,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="Of a model run: onnx, or card (for the Hugging Face Hub). Of a ranking run: csv, "
            "cleanlab (Datalab), labelstudio, fiftyone or npz.",
        ),
    ] = "onnx",
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Where to write [default: in RUN]."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATA", help="Where the data is now, if it has moved."),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Write a model for other runtimes, or a ranking for other tools."""
    from pathlib import Path

    from sebra_tools import export_ranking as tables

    if format_ in tables.FORMATS:
        place = tables.default_file(Path(run), format_) if out is None else Path(out)
        if format_ not in tables.FOLDERS and out is not None:
            o.writable_file(out)
        written = tables.export_ranking(run, format_, place, data)
        emit(written, as_json)
        if not as_json:
            line(f"{written['file']}: {written['samples']} samples")
        return
    _export_model(run, format_, out, as_json)


def _export_model(run: str, format_: str, out: str | None, as_json: bool) -> None:
    from pathlib import Path

    from sebra.debiasing.model import Model
    from sebra_tools.export import export as run_export

    if format_ == "card":
        from sebra.runs.folder import RunFolder
        from sebra_tools.export_card import export_card

        place = Path(run) / "README.md" if out is None else Path(o.writable_file(out))
        card = export_card(RunFolder.open(run), place)
        emit(card, as_json)
        if not as_json:
            line(card["file"])
        return
    file = Path(run) / f"model.{format_}" if out is None else o.writable_file(out)
    found = run_export(Model.load(run, "cpu"), Path(file), format_)
    emit(found, as_json)
    if not as_json:
        shape = " x ".join(map(str, found["input"]["shape"]))
        line(f"{found['file']}: {found['input']['type']} {shape} in, probabilities out")
