"""Batches from a memory map to the device, read and copied while the one before is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor

_DEPTH = 4  # batches on their way
THREAD = "sebra-read-ahead"


def read_ahead(source: Tensor, rows: Tensor, device: torch.device) -> Iterator[Tensor]:
    """`source[rows[i]]` on the device for every i, in order (`rows`: steps x batch, on the host).

    A thread gathers rows into pinned memory and, on a GPU, copies them on a stream of its own.
    """
    cuda = device.type == "cuda"
    side: Any = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]

    def gather(where: Tensor) -> tuple[Tensor, Any]:
        host = torch.empty(len(where), *source.shape[1:], dtype=source.dtype, pin_memory=cuda)
        torch.index_select(source, 0, where, out=host)
        with torch.cuda.stream(side) if cuda else nullcontext():
            batch = host.to(device, non_blocking=True)
            return batch, side.record_event() if cuda else None

    waiting, left = deque[Any](), iter(rows)
    with ThreadPoolExecutor(1, THREAD) as thread:
        waiting.extend(thread.submit(gather, where) for where in islice(left, _DEPTH))
        try:
            while waiting:
                batch, copied = waiting.popleft().result()
                waiting.extend(thread.submit(gather, where) for where in islice(left, 1))
                yield _arrived(batch, copied, device)
        finally:
            for job in waiting:
                job.cancel()


def _arrived(batch: Tensor, copied: Any, device: torch.device) -> Tensor:
    if copied is not None:
        current = torch.cuda.current_stream(device)
        current.wait_event(copied)
        batch.record_stream(current)
    return batch
