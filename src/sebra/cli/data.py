"""`sebra data`: known layouts, and what would be read."""

from __future__ import annotations

import typer

from sebra.cli import options as o
from sebra.cli.output import emit, table

data_app = typer.Typer(
    help="List the known layouts; check what would be read.",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Example: sebra data check photos/",
)


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
