"""Copies of a network that compute the same faster, where a plug-in can make one for the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from sebra.plugins import COPIES, plugins

Forward = Callable[[Tensor], Tensor]


def known_body(name: str, filled: bool) -> nn.Module | None:
    """What timm would build of this name, without the seconds that timm takes to load, or None.

    filled: whether it has weights of its own, or gets them at once.
    """
    make = _maker("body")
    body: nn.Module | None = None if make is None else make(name, filled)
    return body


def training_copy(body: nn.Module, device: torch.device) -> Forward | None:
    """What trains the same parameters, or None."""
    make = _maker("training") if device.type == "cuda" else None
    copy: Forward | None = None if make is None else make(body, device)
    return copy


def evaluation_copy(body: nn.Module, shift: Tensor, scale: Tensor, probe: Tensor) -> Forward | None:
    """What computes the body of raw pictures like `probe`, or None; normalisation included."""
    make = _maker("evaluation")
    copy: Forward | None = None if make is None else make(body, shift, scale, probe)
    return copy


@cache
def _maker(kind: str) -> Any:
    found = plugins(COPIES).get(kind)
    return None if found is None else found.load()
