"""`sebra data`: known layouts, and what would be read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table

data_app = typer.Typer(
    help="List the known layouts; check what would be read.",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Example: sebra data check photos/",
)


def register(app: typer.Typer) -> None:
    app.add_typer(data_app, name="data")


@data_app.callback()
def listing(context: typer.Context, as_json: o.Json = False) -> None:
    """Without a command: the layouts that NAME:PATH knows."""
    if context.invoked_subcommand is not None:
        return
    from sebra.samples.layouts import LAYOUTS, find_layout

    layouts = {name: find_layout(name).summary for name in sorted(LAYOUTS)}
    emit({"layouts": layouts}, as_json)
    if not as_json:
        table("layouts (DATA is NAME:PATH)", ["name", "what"], list(layouts.items()))


@data_app.command("check", epilog="Example: sebra data check photos/")
def check(
    data: o.Data,
    attributes: o.Attributes = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Names only: do not open the images.")
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Say what would be read: classes, splits, groups, unreadable files, leakage."""
    from sebra.samples.check import describe
    from sebra.samples.open import open_samples

    Bars()
    found = describe(open_samples(data, o.split_names(attributes)), deep=not quick)
    emit(found, as_json)
    if not as_json:
        show(found)


def show(found: dict[str, Any]) -> None:
    splits = list(found["splits"])
    rows = [[c["name"], *(c["counts"].get(s, 0) for s in splits)] for c in found["classes"]]
    table(f"{found['source']}: {found['samples']} samples", ["class", *splits], rows)
    for attribute in found.get("attributes", ()):
        line(f"attribute {attribute['name']}: {', '.join(attribute['levels'][:8])}")
    for group in found.get("groups", ()):
        counts = ", ".join(f"{k} {v}" for k, v in group["counts"].items())
        line(f"group {group['name']}: {counts}")
    for fault in found.get("faults", ())[:10]:
        line(f"unreadable: {fault['id']} ({fault['reason']})")
    for note in found.get("notes", ()):
        line(f"note: {note}")
