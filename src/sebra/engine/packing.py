"""Nested state (dicts, lists, tensors, numbers) in one safetensors file, without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sebra.checksums import of_tensors
from sebra.errors import UsageError, reason
from sebra.whole import written

_TENSOR = "__tensor__"
_DICT = "__items__"


def save(path: Path, state: Any, header: dict[str, Any]) -> None:
    """Writes `state` and a JSON `header` atomically: a reader sees the old file or the new one.

    A file that cannot be written is a `SebraError` (a full disk, a folder that vanished).
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    skeleton = _flatten(state, tensors)
    meta = {"state": json.dumps(skeleton), "header": json.dumps(header)}
    meta["checksum"] = of_tensors(tensors, meta["state"], meta["header"])
    with written(path) as (temporary,):
        save_file(tensors, str(temporary), metadata=meta)


def load(path: Path) -> tuple[Any, dict[str, Any]]:
    """The state (tensors on the CPU) and the header; a damaged file is refused by name."""
    header, skeleton, tensors = _open(path)
    try:
        return _restore(skeleton, tensors), header
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _refused(path, error) from None


def _open(path: Path) -> tuple[dict[str, Any], Any, dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            meta = file.metadata() or {}
            header, skeleton = json.loads(meta["header"]), json.loads(meta["state"])
            if not isinstance(header, dict):
                raise ValueError("its header is no table")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if meta.get("checksum") != of_tensors(tensors, meta["state"], meta["header"]):
            raise ValueError("its content is not what was written")
    except (SafetensorError, OSError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise _refused(path, error) from None
    return header, skeleton, tensors


def _refused(path: Path, error: Exception) -> UsageError:
    return UsageError(
        f"{path}: not a checkpoint of Sebra, or damaged ({reason(error)}); start without --resume"
    )


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # Zero-size and shared tensors would trouble the format: every entry is its own memory.
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: name}
    if isinstance(value, dict):
        return {_DICT: [[_key(k), _flatten(v, tensors)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_flatten(v, tensors) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"cannot save a {type(value).__name__} in a checkpoint")


def _key(key: Any) -> Any:
    if isinstance(key, (str, int)):
        return key
    raise TypeError(f"cannot save a key of type {type(key).__name__} in a checkpoint")


def _restore(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {k: _restore(v, tensors) for k, v in value[_DICT]}
    if isinstance(value, list):
        return [_restore(v, tensors) for v in value]
    return value


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
