"""Which preset a command takes: none unless one is asked for."""

from __future__ import annotations

import re

from sebra.samples.layouts import LAYOUTS

NO_PRESET = "none"


def layout_of(data: str) -> str | None:
    """The published layout that DATA names, if it names one."""
    name = re.split("[:?]", data, maxsplit=1)[0]
    return name if name in LAYOUTS else None


def named_preset(preset: str | None) -> str | None:
    """The preset that was asked for by its name."""
    return None if preset == NO_PRESET else preset
