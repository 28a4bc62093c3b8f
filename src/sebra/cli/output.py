"""What a person sees: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from sebra.processes import is_main


def begun(text: str = "") -> None:
    """Replaces the last line of a terminal: a sign of life while libraries are loaded."""
    if sys.stderr.isatty() and is_main():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


class Bars:
    """Progress bars on a terminal; elsewhere one line per message and nothing more."""

    def __init__(self) -> None:
        begun()
        self._live = sys.stderr.isatty() and is_main()
        self._bar: Any = None
        self._task: Any = None
        self._images = 0
        self._began = time.monotonic()

    def start(self, phase: str, total: int) -> None:
        if not self._live:
            return
        from rich import progress as p
        from rich.console import Console

        self.finish()  # of a phase that holds this one
        counted: list[Any] = [p.MofNCompleteColumn(), p.TextColumn("{task.fields[note]}")]
        columns = (
            [p.BarColumn(), *counted, p.TimeRemainingColumn()]
            if total > 1
            else [p.SpinnerColumn(), p.TimeElapsedColumn()]
        )
        self._bar = p.Progress(
            p.TextColumn("{task.description}"),
            *columns,
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(phase, total=total, note="")
        self._began = time.monotonic()

    def advance(self, done: int, images: int = 0, note: str = "") -> None:
        if self._bar is None:
            return
        seconds = time.monotonic() - self._began
        if images and seconds > 0:
            note = f"{images / seconds:,.0f} images/s"
        self._bar.update(self._task, completed=done, note=note)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def message(self, text: str) -> None:
        if self._bar is not None:  # above the bar, which would else stand on the same line
            self._bar.console.print(f"sebra: {text}", markup=False, highlight=False, soft_wrap=True)
        elif is_main():
            typer.echo(f"sebra: {text}", err=True)


def emit(metrics: Mapping[str, Any], as_json: bool) -> None:
    """With --json the one object on stdout."""
    from sebra.runs.folder import clean

    if as_json and is_main():
        typer.echo(json.dumps(clean(metrics), allow_nan=False))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on stdout."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not is_main():
        return
    shown = Table()
    for i, name in enumerate(columns):
        shown.add_column(escape(name), justify="left" if i == 0 else "right")
    for row in rows:
        shown.add_row(*(escape(cell(v)) for v in row))
    width = None if sys.stdout.isatty() else 160
    typer.echo(title)  # of the table it would be broken to the table's width
    Console(width=width).print(shown)


def cell(value: Any) -> str:
    """One figure as a person reads it."""
    if value is None:
        return "–"
    if isinstance(value, Mapping) and "mean" in value:
        return f"{value['mean']:.1f} ± {value['std']:.1f}"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1.0 else f"{value:.1f}"
    return str(value)


def line(text: str) -> None:
    if is_main():
        typer.echo(text)
