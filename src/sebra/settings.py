"""Settings of methods: the defaults of a class, and what differs of them by mode.

A method's configuration is a frozen dataclass. The defaults of its fields are for a pretrained
network that is tuned as a whole; `MODES` beside them names what is other over frozen features and
for a network from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Modes = Mapping[str, Mapping[str, Any]]
MODES = ("features", "finetune", "scratch")


def of_mode(kind: type, mode: str) -> dict[str, Any]:
    """What a mode changes of the defaults of a configuration; a class goes before its parents."""
    out: dict[str, Any] = {}
    for parent in reversed(kind.__mro__):
        out.update(vars(parent).get("MODES", {}).get(mode, {}))
    return out
