"""`sebra data make`: data sets built from a person's own pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sebra.cli import options as o
from sebra.cli.data import data_app
from sebra.cli.output import Bars, emit, line, table

make_app = typer.Typer(
    help="Build a data set from your own pictures.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: sebra data make urbancars --cars cars/ --backgrounds scenes/ "
    "--objects cutouts/ --out urbancars/",
)


def register(_app: typer.Typer) -> None:
    data_app.add_typer(make_app, name="make")


@make_app.command(
    "urbancars",
    epilog="Example: sebra data make urbancars --cars cars/ --backgrounds scenes/ "
    "--objects cutouts/ --out urbancars/ --counts 400,50,50",
)
def urbancars(
    cars: Annotated[
        Path,
        typer.Option(
            "--cars",
            metavar="DIR",
            help="urban/ and country/ with car photos, each with NAME_mask.png or transparent.",
            show_default=False,
        ),
    ],
    backgrounds: Annotated[
        Path,
        typer.Option(
            "--backgrounds",
            metavar="DIR",
            help="urban/ and country/ with photos of scenes.",
            show_default=False,
        ),
    ],
    objects: Annotated[
        Path,
        typer.Option(
            "--objects",
            metavar="DIR",
            help="urban/ and country/ with cut-outs, masked as the cars.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="A new folder.", show_default=False),
    ],
    size: Annotated[int, typer.Option("--size", help="Side of the pictures in pixels.")] = 256,
    counts: Annotated[
        str,
        typer.Option(
            "--counts", metavar="TRAIN,VAL,TEST", help="Pictures per class in each split."
        ),
    ] = "4000,500,500",
    ratio: Annotated[
        float,
        typer.Option("--ratio", help="Share of training pictures whose background suits the car."),
    ] = 0.95,
    object_ratio: Annotated[
        float | None,
        typer.Option("--object-ratio", help="The same for the object [default: --ratio]."),
    ] = None,
    seed: o.Seed = 0,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="A source picture may serve several times within a split."),
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Compose UrbanCars: a car at the centre, an object at the right edge, a scene behind."""
    from sebra_bench.making.urbancars import Recipe, make_urbancars

    recipe = Recipe(
        cars=cars,
        backgrounds=backgrounds,
        objects=objects,
        out=out,
        size=size,
        counts=_three(counts),
        background_ratio=ratio,
        object_ratio=ratio if object_ratio is None else object_ratio,
        seed=seed,
        reuse=reuse,
    )
    bars = Bars()
    bars.start("compose", 2 * sum(recipe.counts))
    try:
        made = make_urbancars(recipe, lambda done, total: bars.advance(done, images=done))
    finally:
        bars.finish()
    emit(made, as_json)
    if not as_json:
        rows = [[split, *groups.values()] for split, groups in made["groups"].items()]
        names = list(made["groups"]["train"])
        cells = [[name, *(row[1 + i] for row in rows)] for i, name in enumerate(names)]
        table(f"{made['pictures']} pictures", ["group", *made["groups"]], cells)
        line(f"data: urbancars:{out}")


def _three(text: str) -> tuple[int, int, int]:
    from sebra.errors import UsageError

    try:
        train, val, test = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--counts: give three numbers TRAIN,VAL,TEST, not {text!r}") from None
    return train, val, test
