"""Layouts of DATA by name, `NAME:PATH`. A layout's module is imported only when it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sebra.errors import UsageError
from sebra.plugins import LAYOUTS as GROUP
from sebra.plugins import plugins
from sebra.samples.table import Samples

LAYOUTS = plugins(GROUP)


@dataclass(frozen=True)
class NoOptions:
    """For a layout that has none."""


@dataclass(frozen=True)
class Layout:
    """A reader with its options: a frozen dataclass whose defaults give names and types.

    needs_path: whether a path follows its name. folder: whether that is a folder's.
    """

    name: str
    summary: str
    options: type[Any]
    read: Callable[[Path, Any], Samples]
    needs_path: bool = True
    folder: bool = True

    def parse(self, query: str) -> Any:
        """The options given as `a=1&b=2`, checked."""
        known = {field.name: field for field in dataclasses.fields(self.options)}
        values: dict[str, Any] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name not in known:
                names = ", ".join(known) or "none"
                raise UsageError(f"{self.name}: unknown option {name!r} (known: {names})")
            values[name] = _convert(self.name, name, text, known[name].default)
        return self.options(**values)


def layout(
    name: str,
    summary: str,
    options: type[Any] = NoOptions,
    needs_path: bool = True,
    folder: bool = True,
) -> Callable[[Callable[[Path, Any], Samples]], Layout]:
    """Makes a `Layout` of a function `read(path, options) -> Samples`."""

    def wrap(read: Callable[[Path, Any], Samples]) -> Layout:
        return Layout(name, summary, options, read, needs_path, folder)

    return wrap


def find_layout(name: str) -> Layout:
    """The layout of this name, imported now."""
    found: Layout = LAYOUTS[name].load()
    return found


def _convert(layout_name: str, name: str, text: str, default: Any) -> Any:
    kind = type(default)
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise UsageError(f"{layout_name}: option {name} must be {wanted}, not {text!r}") from None
