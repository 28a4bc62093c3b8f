"""`sebra data check`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sebra.cli import options as o
from sebra.cli.data import data_app
from sebra.cli.output import Bars, begun, emit, line, table


def register() -> None:
    data_app.command("check", epilog="Example: sebra data check photos/")(check)


def check(
    data: o.Data,
    attributes: o.Attributes = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Names only: do not open the images.")
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Say what would be read: classes, splits, groups, unreadable files, leakage."""
    begun("sebra: loading libraries")
    from sebra.samples.open import open_samples
    from sebra_tools.data_check import describe

    bars = Bars()
    samples = open_samples(data, o.split_names(attributes))
    bars.start(f"looking at {len(samples)} samples", 1)
    try:
        found = describe(samples, deep=not quick)
    finally:
        bars.finish()
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
