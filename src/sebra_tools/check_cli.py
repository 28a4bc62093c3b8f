"""`sebra check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table
from sebra.errors import UsageError

if TYPE_CHECKING:
    from sebra.runs.folder import RunFolder

EXAMPLE = "Example: sebra check photos/ --baseline runs/photos --junit check.xml"


def register(app: typer.Typer) -> None:
    app.command("check", epilog=EXAMPLE)(check)


def check(
    target: Annotated[
        str,
        typer.Argument(metavar="DATA|RUN", help="A run to look at, or data to audit first."),
    ],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="RUN", help="Only what is new since this run counts."),
    ] = None,
    verdicts: Annotated[
        str | None,
        typer.Option(
            "--verdicts",
            metavar="FILE",
            help="Take over the verdicts that were given on an earlier ranking.",
        ),
    ] = None,
    predictions: Annotated[
        str | None,
        typer.Option(
            "--predictions",
            metavar="FILE",
            help="The model to check: predictions.csv or an .onnx file.",
        ),
    ] = None,
    largest_drop: Annotated[
        float | None,
        typer.Option(
            "--largest-drop",
            metavar="POINTS",
            help="Largest allowed drop of accuracy where samples break a pattern.",
        ),
    ] = None,
    unreviewed: Annotated[
        int | None,
        typer.Option(
            "--unreviewed", metavar="N", help="How many patterns may lack a verdict [default: 0]."
        ),
    ] = None,
    suspects: Annotated[
        float | None,
        typer.Option(
            "--suspects",
            metavar="SHARE",
            help="Largest allowed share of suspects that nobody called right.",
        ),
    ] = None,
    worst_group: Annotated[
        float | None,
        typer.Option(
            "--worst-group",
            metavar="PERCENT",
            help="Lowest allowed accuracy of the worst discovered group.",
        ),
    ] = None,
    returned: Annotated[
        int | None,
        typer.Option(
            "--returned", metavar="N", help="How many known shortcuts may come back [default: 0]."
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Where conditions are [default: sebra.toml, pyproject.toml].",
        ),
    ] = None,
    junit: Annotated[
        str | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML here.")
    ] = None,
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="Write a Markdown table here.")
    ] = None,
    out: o.Out = None,
    seed: o.Seed = 0,
    device: o.Device = "auto",
    as_json: o.Json = False,
) -> None:
    """Check DATA or a RUN against conditions, for CI: exits with status 1 where one fails.

    Conditions are read from [check] in sebra.toml or [tool.sebra.check] in pyproject.toml; options
    win. DATA is audited first.
    """
    from pathlib import Path

    from sebra.runs.folder import CONFIG, RunFolder
    from sebra_tools.check import check as run_check
    from sebra_tools.check import conditions_of
    from sebra_tools.check import junit as junit_text

    given = {"largest_drop": largest_drop, "unreviewed": unreviewed, "suspects": suspects,
             "worst_group": worst_group, "returned": returned}  # fmt: skip
    conditions = conditions_of(config, given)
    files = [None if f is None else Path(o.writable_file(f)) for f in (junit, markdown)]
    is_run = (Path(target) / CONFIG).is_file()
    if is_run and out is not None:
        raise UsageError("--out: is for DATA, which is audited first; a run already has its folder")
    if baseline is not None:
        RunFolder.open(baseline)
    folder = RunFolder(Path(target)) if is_run else _audited(target, out, seed, device)
    found = run_check(folder, conditions, baseline, verdicts, predictions, Bars())
    for file, write in zip(files, (junit_text, _markdown), strict=True):
        if file is not None:
            from sebra.whole import write_text

            write_text(file, write(found))
    emit(found, as_json)
    if not as_json:
        _show(found)
    if not found["passed"]:
        raise typer.Exit(1)


def _audited(data: str, out: str | None, seed: int, device: str) -> RunFolder:
    from sebra.runs.folder import RunFolder
    from sebra.workflows.audit import audit
    from sebra.workflows.prepared import Source
    from sebra.workflows.rank import RankOptions

    folder = RunFolder.create(out, "check")
    audit(Source(data, seed, device), RankOptions("peel"), folder, progress=Bars())
    return folder


def _rows(found: dict[str, object]) -> list[dict[str, str]]:
    from sebra_tools.check import shown

    rows = found["conditions"]
    assert isinstance(rows, list)
    return [
        {"condition": r["condition"], "limit": shown(r["limit"]), "found": shown(r["found"]),
         "": "holds" if r["holds"] else "fails", "why": r["why"]}
        for r in rows
    ]  # fmt: skip


def _markdown(found: dict[str, object]) -> str:
    from sebra_tools.tables import markdown

    passed = "all hold" if found["passed"] else "one or more fail"
    return f"### sebra check: {passed}\n\n{markdown(_rows(found))}"


def _show(found: dict[str, object]) -> None:
    rows = _rows(found)
    table(
        f"check of {found['run']}",
        list(rows[0]) if rows else [""],
        [list(r.values()) for r in rows],
    )
    line("passed" if found["passed"] else "failed")
