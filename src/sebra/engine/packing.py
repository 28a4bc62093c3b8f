"""Nested state (dicts, lists, tensors, numbers) in one safetensors file, without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
