"""`sebra bench agreement`, `nulls` and `suspects`: can findings be believed?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table

AGREEMENT_EXAMPLE = "Example: sebra bench agreement --sets planted --out runs/agreement"
NULLS_EXAMPLE = "Example: sebra bench nulls --seeds 20 --out runs/nulls"
SUSPECTS_EXAMPLE = "Example: sebra bench suspects --sets digits,demo0 --out runs/suspects"
Out = Annotated[
    str,
    typer.Option("--out", metavar="FOLDER", help="Where rows.jsonl lies; rows in it are kept."),
]


def register(app: typer.Typer) -> None:
    app.command("agreement", epilog=AGREEMENT_EXAMPLE)(agreement)
    app.command("nulls", epilog=NULLS_EXAMPLE)(nulls)
    app.command("suspects", epilog=SUSPECTS_EXAMPLE)(suspects)


def agreement(
    out: Out,
    sets: Annotated[
        str, typer.Option("--sets", metavar="A,B", help="Planted sets, as for carryover.")
    ] = "planted",
    as_json: o.Json = False,
) -> None:
    """Does the control predict rightly whether a planted mark is found?"""
    from sebra_bench.carryover.agreement import agreement as run
    from sebra_bench.carryover.agreement import summary
    from sebra_bench.carryover.sets import choose_planted

    rows = run(choose_planted(o.split_names(sets) or ()), Path(out), Bars())
    emit({"summary": summary(rows), "sets": rows}, as_json)
    if not as_json:
        columns = ["set", "area", "found", "marks of the control found", "agree"]
        cells = []
        for row in rows:
            said = f"{row['control_found']} of {row['trials']}"
            area, found = row["finding"].get("area", 0.5), row["finding"].get("found")
            agree = "yes" if row["agrees"] else "no"
            cells.append([row["data"], f"{area:.2f}", "yes" if found else "no", said, agree])
        table("What the positive control says, and what happens", columns, cells)
        for key, value in summary(rows).items():
            line(f"{key}: {value}")


def nulls(
    out: Out,
    seeds: Annotated[int, typer.Option("--seeds", help="How many arrays of each family.")] = 20,
    as_json: o.Json = False,
) -> None:
    """How often does peel name a pattern in arrays that have none?"""
    from sebra_bench.nulls import FAMILIES, summary
    from sebra_bench.nulls import nulls as run

    rows = run(FAMILIES, seeds, Path(out), Bars())
    figures = summary(rows)
    emit({"summary": figures, "runs": rows}, as_json)
    if not as_json:
        cells = [[name, str(f["named"]), str(f["runs"])] for name, f in figures["families"].items()]
        table("Arrays without a pattern", ["family", "named", "runs"], cells)
        line(f"named: {figures['named']} of {figures['runs']}")


def suspects(
    out: Out,
    sets: Annotated[
        str, typer.Option("--sets", metavar="A,B", help="Sets, as for carryover.")
    ] = "pets,scenes,demo0,digits,objects",
    share: Annotated[
        float, typer.Option("--share", help="Share of the labels that are made wrong.")
    ] = 0.05,
    seeds: Annotated[int, typer.Option("--seeds", help="How many, from --first on.")] = 3,
    first: Annotated[int, typer.Option("--first", help="The first seed.")] = 10,
    as_json: o.Json = False,
) -> None:
    """How many planted wrong labels are flagged, by noise and by cleanlab?"""
    from sebra_bench.carryover.sets import choose_sets
    from sebra_bench.suspects import summary
    from sebra_bench.suspects import suspects as run

    chosen = choose_sets(o.split_names(sets) or ())
    rows = run(chosen, share, range(first, first + seeds), Path(out), Bars())
    figures = summary(rows)
    emit({"summary": figures, "runs": rows}, as_json)
    if not as_json:
        finders = list(dict.fromkeys(name for found in figures.values() for name in found))
        cells = []
        for data, found in figures.items():
            shares = [f"{found[f]['recall']:.2f} / {found[f]['precision']:.2f}" for f in finders]
            cells.append([data, *shares])
        table("Wrong labels: flagged / of the flagged wrong", ["set", *finders], cells)
