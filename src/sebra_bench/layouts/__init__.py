"""Readers of published data sets and of the built-in one, by the name in `NAME:PATH`."""

from __future__ import annotations

import re

from sebra.samples.layouts import LAYOUTS


def layout_of(data: str) -> str | None:
    """The published layout that DATA names, if it names one."""
    name = re.split("[:?]", data, maxsplit=1)[0]
    return name if name in LAYOUTS else None
