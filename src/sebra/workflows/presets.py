"""Which preset a command takes on which data."""

from __future__ import annotations

import re

from sebra.engine.session import Session
from sebra.runs.config import preset_names
from sebra.samples.layouts import LAYOUTS

NO_PRESET = "none"


def layout_of(data: str) -> str | None:
    """The published layout that DATA names, if it names one."""
    name = re.split("[:?]", data, maxsplit=1)[0]
    return name if name in LAYOUTS else None


def named_preset(preset: str | None) -> str | None:
    """The preset that was asked for by its name."""
    return None if preset == NO_PRESET else preset


def preset_for(data: str, preset: str | None) -> str | None:
    """The preset to use on DATA: the one asked for, else the paper's for its layout."""
    if preset is not None:
        return named_preset(preset)
    own = f"paper/{layout_of(data)}"
    return own if own in preset_names() else None


def training_preset(data: str, preset: str | None, mode: str, session: Session) -> str | None:
    """The preset to train a model with: the paper's is for a pretrained network, all layers."""
    found = preset_for(data, preset)
    if preset is not None or found is None:
        return found
    if mode != "finetune":
        return None
    session.note(f"settings of {found}, the layout's own; --preset none takes the usual ones")
    return found
