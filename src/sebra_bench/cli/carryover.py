"""`sebra bench plant`, `sebra bench carryover` and `sebra bench naming`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table

PLANT_EXAMPLE = (
    "Example: sebra bench plant photos/ --nuisance watermark --share 0.95 --out planted/"
)
CARRY_EXAMPLE = (
    "Example: sebra bench carryover --sets quick --methods auto --seeds 3 --out runs/carry"
)

NAMING_EXAMPLE = "Example: sebra bench naming --sets planted:report --out runs/naming"


def register(app: typer.Typer) -> None:
    app.command("plant", epilog=PLANT_EXAMPLE)(plant)
    app.command("carryover", epilog=CARRY_EXAMPLE)(carryover)
    app.command("naming", epilog=NAMING_EXAMPLE)(naming)


def plant(
    canvas: Annotated[
        str,
        typer.Argument(
            metavar="CANVAS",
            help="Pictures, texts or arrays in any form of DATA, or sklearn:NAME.",
            show_default=False,
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where the copy goes.")],
    nuisance: Annotated[
        str,
        typer.Option(
            "--nuisance",
            help="watermark, border, cast, blur, compression, resolution, brightness, position; "
            "token (texts); constant (arrays).",
        ),
    ] = "watermark",
    share: Annotated[
        float, typer.Option("--share", help="Share of the class that carries the mark.")
    ] = 0.95,
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            help="Which classes carry a mark: all (each its own variant), two of many, or one.",
        ),
    ] = "all",
    rare: Annotated[
        bool, typer.Option("--rare", help="Keep only a fifth of every second class.")
    ] = False,
    classes: Annotated[
        str | None, typer.Option("--classes", metavar="A,B", help="Only these classes.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Decides which class and which samples carry the mark.")
    ] = 0,
    as_json: o.Json = False,
) -> None:
    """Plant a nuisance on a copy of CANVAS; its attribute `mark` says who carries it."""
    from sebra_bench.carryover.planting import Plan
    from sebra_bench.carryover.planting import plant as write
    from sebra_bench.carryover.schemes import Scheme

    names = tuple(o.split_names(classes) or ())
    planted = write(Plan(canvas, nuisance, Scheme(scheme, share, rare), names, seed), Path(out))
    emit({"data": planted.data, **planted.facts}, as_json)
    if not as_json:
        line(f"planted: {planted.data}")


def carryover(
    out: Annotated[
        str,
        typer.Option(
            "--out", metavar="FOLDER", help="Where rows.jsonl lies; rows in it are not run again."
        ),
    ],
    sets: Annotated[
        str,
        typer.Option(
            "--sets",
            metavar="A,B",
            help="Names, or ordinary, planted, biased, settings, report, planted:report, quick.",
        ),
    ] = "ordinary,planted,biased",
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            metavar="A,B",
            help="Methods of debias, with settings in brackets; logistic: scikit-learn's.",
        ),
    ] = "erm,auto",
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds, from 0 on.")] = 3,
    mode: o.Mode = "features",
    device: o.Device = "auto",
    weights: o.Weights = None,
    as_json: o.Json = False,
) -> None:
    """Run methods with one setting on many sets: do they harm ordinary ones and mend biased ones?

    Of biased and planted sets it also says how much is recovered of what training in balance over
    the true groups gains.
    """
    from sebra_bench.carryover.run import CarryOptions
    from sebra_bench.carryover.run import carryover as run
    from sebra_bench.carryover.sets import choose_sets
    from sebra_bench.carryover.summary import lines_of, summary
    from sebra_bench.plan import parse_specs

    labels = tuple(spec.label for spec in parse_specs(methods))
    options = CarryOptions(labels, seeds, mode, device, weights)
    chosen = choose_sets(o.split_names(sets) or ())
    rows = run(chosen, options, Path(out), Bars())
    lines = lines_of(rows)
    figures = summary(lines)
    emit({"summary": figures, "sets": [asdict(x) for x in lines]}, as_json)
    if not as_json:
        _show(lines, figures)
        commits = sorted({str(row.get("commit", row["version"])) for row in rows})
        line(f"rows: {out}, of {', '.join(commits)}")


def naming(
    out: Annotated[
        str,
        typer.Option(
            "--out", metavar="FOLDER", help="Where rows.jsonl lies; sets in it are not run again."
        ),
    ],
    sets: Annotated[
        str, typer.Option("--sets", metavar="A,B", help="Planted sets, as for carryover.")
    ] = "planted",
    as_json: o.Json = False,
) -> None:
    """Are planted marks named by the right kind of word, and do the maps point at them?"""
    from sebra_bench.carryover.naming import naming as run
    from sebra_bench.carryover.naming import summary
    from sebra_bench.carryover.sets import choose_planted

    rows = run(choose_planted(o.split_names(sets) or ()), Path(out), Bars())
    emit({"summary": summary(rows), "sets": rows}, as_json)
    if not as_json:
        columns = ["set", "found", "first words", "right", "peaks", "true sides", "right", "peaks"]
        cells = []
        for row in rows:
            sides = [row.get(side) for side in ("found", "true")]
            cells.append([row["data"], row["verdict"], *(c for s in sides for c in _said(s))])
        table("Words and places of planted marks", columns, cells)
        for key, value in summary(rows).items():
            line(f"{key}: {value}")


def _said(sides: dict[str, Any] | None) -> list[str]:
    if sides is None:
        return ["–", "–", "–"]
    words = ", ".join(word["kind"] for word in sides["words"][:2]) or "none"
    peaks = " ".join(_number(p, 2) for p in sides.get("peaks", {}).values())
    return [words, "yes" if sides["right"] else "no", peaks]


def _show(lines: list[Any], figures: list[dict[str, Any]]) -> None:
    columns = ["set", "method", "average", "balanced", "I.D.", "harm", "gain", "recovered"]
    columns += ["stages", "area", "ECE", "seconds"]
    rows = []
    for x in lines:
        first = [x.data, x.method, _number(x.accuracy), _number(x.balanced), _number(x.id_accuracy)]
        second = [_number(x.harm), _number(x.gain), _number(x.recovered, 2), _number(x.stages)]
        third = [_number(x.area, 2), _number(x.ece, 3), _number(x.seconds)]
        rows.append([*first, *second, *third])
    table("Every set", columns, rows)
    columns = [
        "method",
        "sets",
        "harm",
        "worst harm",
        "claims",
        "planted: recovered",
        "together",
        "worst",
    ]
    columns += [
        "found",
        "where it costs",
        "biased: recovered",
        "worst",
        "ECE",
        "in budget",
        "x plain",
    ]
    table("Over the sets", columns, [_summary_row(f) for f in figures])
    failed = [f"{x.data}, {x.method}: {error}" for x in lines for error in x.errors]
    for text in failed:
        line(f"failed: {text}")


def _summary_row(f: dict[str, Any]) -> list[str]:
    planted, biased = f["planted"], f["biased"]
    return [
        f["method"],
        f"{f['role']} ({f['sets']})",
        _number(f["harm"], 2),
        _worst(f["worst_harm"]),
        _number(f["claims_on_ordinary"], 2),
        _number(planted["recovered"], 2),
        _number(planted["recovered_together"], 2),
        _worst(planted["worst_recovered"], 2),
        _number(planted["found"], 2),
        _number(planted["found_where_it_costs"], 2),
        _number(biased["recovered"], 2),
        _worst(biased["worst_recovered"], 2),
        _number(f["ece"], 3),
        _number(f["within_budget"], 2),
        _number(f["times_plain"]),
    ]


def _worst(found: dict[str, Any] | None, digits: int = 1) -> str:
    return "–" if found is None else f"{found['value']:.{digits}f} ({found['data']})"


def _number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
