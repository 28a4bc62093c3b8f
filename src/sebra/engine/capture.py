"""The state of a phase, taken out of its objects and put back into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def checked(state: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What a checkpoint must hold, whoever wrote it."""
    done, current = dict(state["done"]), state["current"]
    for result in done.values():
        if not all(isinstance(value, Tensor) for value in result.values()):
            raise TypeError("results are tensors")
    if current is not None:
        state = dict(current["state"])
        current = {"phase": current["phase"], "epoch": int(current["epoch"]), "state": state}
    return done, current


def capture(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the objects of a phase hold now, and the global random state, ready to be saved."""
    out: dict[str, Any] = {"__rng__": torch.get_rng_state()}
    for name, value in state.items():
        if isinstance(value, Tensor):
            out[name] = value.detach().cpu()
        elif isinstance(value, torch.Generator):
            out[name] = value.get_state()
        else:
            out[name] = value.state_dict()
    return out


def apply(target: Any, saved: Any) -> None:
    """Puts what was saved back into one object of a phase."""
    if isinstance(target, Tensor):
        with torch.no_grad():
            target.copy_(saved)
    elif isinstance(target, torch.Generator):
        target.set_state(saved)
    else:
        target.load_state_dict(saved)
        if isinstance(target, torch.optim.Optimizer):
            _rates_to_device(target)


def _rates_to_device(optimizer: torch.optim.Optimizer) -> None:
    """A restored learning rate must be where a captured graph reads it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].to(group["params"][0].device)
