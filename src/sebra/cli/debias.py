"""`sebra debias`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table
from sebra.errors import UsageError
from sebra.measuring.scores import worst_shown

if TYPE_CHECKING:
    from sebra.workflows.prepared import Source


@o.takes(source=o.make_source)
def debias(
    source: Source,
    method: o.DebiasMethod = "auto",
    ranking: Annotated[
        str | None,
        typer.Option(
            "--ranking", metavar="RUN", help="An earlier ranking: a run folder or parquet file."
        ),
    ] = None,
    rank_method: Annotated[
        str | None,
        typer.Option("--rank-method", help="How to rank where no --ranking is given."),
    ] = None,
    verdicts: Annotated[
        str | None,
        typer.Option(
            "--verdicts",
            metavar="FILE",
            help="Act only on patterns that you called a shortcut (see `sebra review`).",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="POINTS",
            help="Points of ordinary accuracy that --method auto may cost [default: 3].",
        ),
    ] = None,
    select: Annotated[
        str,
        typer.Option(
            "--select",
            help="What chooses the model: auto (attributes are not looked at) or groups (the true "
            "groups of the validation split).",
        ),
    ] = "auto",
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

    settings = (*(set_ or ()), *budget_setting(budget, method))
    chosen = DebiasOptions(
        method, preset, settings, ranking, rank_method, min_group, select, verdicts
    )
    check_options(chosen)
    o.check_track(track)
    folder = RunFolder.create(out, "debias", resume)
    run = run_debias(source, chosen, folder, resume, Bars())
    o.send_track(track, folder)
    emit(run.metrics, as_json)
    if not as_json:
        show_choice(run.metrics)
        show_evaluation(run.metrics["evaluation"], method)
        line(f"run: {folder.path}")


def budget_setting(budget: float | None, method: str) -> tuple[str, ...]:
    """`--budget` as the setting of `auto` that it is."""
    if budget is None:
        return ()
    if method != "auto":
        raise UsageError(f"--budget: belongs to --method auto, not {method}")
    return (f"budget={budget}",)


def show_choice(metrics: Mapping[str, Any]) -> None:
    """What `auto` decided: plain training and the kept model side by side."""
    choice = metrics.get("choice")
    if choice is None:
        return
    plain, kept = choice["figures"]["plain"], choice["figures"]["kept"]
    rows = [["accuracy, held-out samples", plain["accuracy"], kept["accuracy"]]]
    if choice["patterns"]:
        rows.append(["mean over classes and patterns", plain["balanced"], kept["balanced"]])
    sides = zip(plain.get("patterns", ()), kept.get("patterns", ()), strict=True)
    for k, (before, after) in enumerate(sides, 1):
        for side, words in (("with", "follow"), ("against", "break")):
            name = f"samples that {words} pattern {k} ({before[side]['n']})"
            rows.append([name, before[side]["accuracy"], after[side]["accuracy"]])
    split = metrics["evaluation"].get("split")
    for key, words in (("average", "accuracy"), ("worst_group", "worst group")):
        found = [metrics[part] for part in ("plain", "evaluation")]
        figures = [worst_shown(e) if key == "worst_group" else e.get(key) for e in found]
        if figures[0] is not None:
            rows.append([f"{words}, {split} split", *figures])
    table(f"kept: {choice['kept']} training", ["", "plain", "kept"], rows)


def show_evaluation(evaluation: Mapping[str, Any], name: str) -> None:
    """Headline figures, then the groups."""
    cues = evaluation.get("cues", {})
    rows: list[list[Any]] = [
        ["I.D. accuracy", evaluation.get("id_accuracy") if evaluation.get("gaps") else None],
        ["accuracy", evaluation.get("average")],
        *([f"gap {k}", v] for k, v in evaluation.get("gaps", {}).items()),
        ["average gap", evaluation.get("average_gap")],
        ["worst group", worst_shown(evaluation)],
        ["", evaluation.get("worst_group_name", "")],
        *([f"follows {k}", v] for k, v in cues.items() if len(cues) > 1),
    ]
    shown = [row for row in rows if row[1] not in (None, "")]
    table(f"{name} on the {evaluation.get('split', 'test')} split", ["figure", "value"], shown)
    groups = evaluation.get("groups", [])
    if groups:
        figures = ("n_train", "n_test", "accuracy")
        cells = [[g["name"] + " (small)" * g["small"], *map(g.get, figures)] for g in groups]
        what = "group" if any(g.get("values") for g in groups) else "class"
        table(f"by {what}", [what, "train", "test", "accuracy"], cells)
