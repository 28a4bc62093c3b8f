"""Settings of methods: the defaults of a class, and what differs of them by mode.

A method's configuration is a frozen dataclass. The defaults of its fields are for a pretrained
network that is tuned as a whole; `MODES` beside them names what is other over frozen features and
for a network from scratch. What turning a setting does is said beside it too, for docs/settings.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Modes = Mapping[str, Mapping[str, Any]]
MODES = ("features", "finetune", "scratch")


def of_mode(kind: type, mode: str) -> dict[str, Any]:
    """What a mode changes of the defaults of a configuration; a class goes before its parents."""
    out: dict[str, Any] = {}
    for parent in reversed(kind.__mro__):
        out.update(vars(parent).get("MODES", {}).get(mode, {}))
    return out


def setting(default: Any, turned: str) -> Any:
    """A field with its default and what changes when it is turned."""
    return dataclasses.field(default=default, metadata={"turned": turned})


@dataclass(frozen=True)
class StepConfig:
    """How a network is stepped: what every method that trains one shares."""

    optimizer: str = setting(
        "sgd", "`adam` and `adamw` move every weight alike and need a smaller `lr` than `sgd`"
    )
    lr: float = setting(
        1e-3, "larger learns faster and coarser: fewer ranks, and a pretrained network forgets more"
    )
    momentum: float = setting(0.9, "larger carries on longer in one direction (`sgd` only)")
    weight_decay: float = setting(1e-4, "larger keeps weights small and fits rare samples less")
    batch: int = setting(
        128, "larger takes fewer, steadier steps per epoch; 0 lets a ranking's grow with the data"
    )
    flip: bool = setting(True, "training pictures are mirrored at random")
    crop: float = setting(
        1.0,
        "smaller shows smaller random parts of training pictures, down to this share of the area",
    )
