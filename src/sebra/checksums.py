"""Checksums of what is kept, so that a byte that changed is noticed before it counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128_hexdigest

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

_BLOCK = 16 * 2**20
_THREADS = 4  # enough to be as quick as a disk; the hash needs no lock of Python's


def of_parts(parts: Iterable[bytes | str]) -> str:
    """Of several parts in their order."""
    joined = [xxh3_128_hexdigest(p.encode() if isinstance(p, str) else p) for p in parts]
    return xxh3_128_hexdigest(" ".join(joined).encode())


def of_file(path: Path) -> str:
    """Of a file of any size; its blocks are read side by side."""

    def block(start: int) -> str:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            return xxh3_128_hexdigest(file.read(_BLOCK))

    starts = range(0, max(path.stat().st_size, 1), _BLOCK)
    if len(starts) == 1:
        return of_parts([block(0)])
    with ThreadPoolExecutor(_THREADS) as threads:
        return of_parts(threads.map(block, starts))


def of_json(value: Any) -> str:
    """Of a value that JSON can hold, however it is laid out in a file."""
    return of_parts([json.dumps(value, sort_keys=True)])


def of_tensors(tensors: Mapping[str, Tensor], *texts: str) -> str:
    """Of named tensors on the CPU, and of texts beside them."""
    import torch

    def bytes_of(tensor: Tensor) -> bytes:
        flat = tensor.detach().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""

    parts: list[bytes | str] = [*texts]
    for name, tensor in sorted(tensors.items()):
        parts += [f"{name} {tensor.dtype} {tuple(tensor.shape)}", bytes_of(tensor)]
    return of_parts(parts)


def of_table(table: pd.DataFrame) -> str:
    """Of the columns of a table: numbers and texts, whichever type pandas gives them."""
    parts: list[bytes | str] = []
    for name, column in table.items():
        values = column.to_numpy()
        number = values.dtype.kind in "biuf"
        parts += [str(name), values.tobytes() if number else "\0".join(map(str, column.tolist()))]
    return of_parts(parts)
