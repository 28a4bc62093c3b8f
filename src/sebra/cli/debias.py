"""`sebra debias`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table

if TYPE_CHECKING:
    from sebra.workflows.prepared import Source

EXAMPLE = "Example: sebra debias photos/ --ranking runs/photos"


def register(app: typer.Typer) -> None:
    app.command("debias", epilog=EXAMPLE)(debias)


@o.takes(source=o.make_source)
def debias(
    source: Source,
    method: o.DebiasMethod = "sebra",
    ranking: Annotated[
        str | None,
        typer.Option(
            "--ranking", metavar="RUN", help="An earlier ranking: a run folder or parquet file."
        ),
    ] = None,
    rank_method: Annotated[
        str | None,
        typer.Option("--rank-method", help="The ranker to use when no --ranking is given."),
    ] = None,
    min_group: Annotated[
        int, typer.Option("--min-group", help="Smaller test groups are never the worst group.")
    ] = 20,
    out: o.Out = None,
    preset: o.Preset = None,
    set_: o.Set = None,
    track: o.Track = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Train a model on DATA that does not need the shortcuts (or a baseline to compare with)."""
    from sebra.runs.folder import RunFolder
    from sebra.workflows.debias import DebiasOptions, check_options
    from sebra.workflows.debias import debias as run_debias

    chosen = DebiasOptions(method, preset, tuple(set_ or ()), ranking, rank_method, min_group)
    check_options(chosen)
    o.check_track(track)
    folder = RunFolder.create(out, "debias", resume)
    run = run_debias(source, chosen, folder, resume, Bars())
    o.send_track(track, folder)
    emit(run.metrics, as_json)
    if not as_json:
        show_evaluation(run.metrics["evaluation"], method)
        line(f"run: {folder.path}")


def show_evaluation(evaluation: Mapping[str, Any], name: str) -> None:
    """Headline figures, then the groups."""
    rows: list[list[Any]] = [
        ["I.D. accuracy", evaluation.get("id_accuracy")],
        ["average", evaluation.get("average")],
        *([f"gap {k}", v] for k, v in evaluation.get("gaps", {}).items()),
        ["average gap", evaluation.get("average_gap")],
        ["worst group", evaluation.get("worst_group")],
        ["", evaluation.get("worst_group_name", "")],
        *([f"follows {k}", v] for k, v in evaluation.get("cues", {}).items()),
    ]
    shown = [row for row in rows if row[1] not in (None, "")]
    table(f"{name} on the {evaluation.get('split', 'test')} split", ["figure", "value"], shown)
    groups = evaluation.get("groups", [])
    if groups:
        cells = [
            [
                g["name"] + (" (small)" if g["small"] else ""),
                g["n_train"],
                g["n_test"],
                g["accuracy"],
            ]
            for g in groups
        ]
        table("groups", ["group", "train", "test", "accuracy"], cells)
