"""Batches from a memory map to the device, read and copied while the one before is computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_DEPTH = 4  # batches on their way


def read_ahead(source: Tensor, rows: Tensor, device: torch.device) -> Iterator[Tensor]:
    """`source[rows[i]]` on the device for every i, in order (`rows`: steps x batch, on the host).

    A thread gathers rows into pinned memory; on a GPU the copies run on a stream of their own, one
    batch ahead of the computation. A batch is valid until the one after the next is asked for.
    """
    reader = _Reader(source, rows, device)
    try:
        yield from _copied(reader, device) if device.type == "cuda" else reader.gathered()
    finally:
        reader.close()


class _Reader:
    """Gathers batches into a ring of host buffers on a thread of its own."""

    def __init__(self, source: Tensor, rows: Tensor, device: torch.device) -> None:
        self._source, self._rows = source, rows
        shape = (rows.shape[1], *source.shape[1:])
        pin = device.type == "cuda"
        depth = min(_DEPTH, len(rows))
        self._buffers = [
            torch.empty(shape, dtype=source.dtype, pin_memory=pin) for _ in range(depth)
        ]
        self._copies: list[Any] = [None] * depth  # the event after which a buffer may be reused
        self._free: queue.Queue[int] = queue.Queue()
        self._ready: queue.Queue[int | BaseException] = queue.Queue()
        for slot in range(depth):
            self._free.put(slot)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._gather, daemon=True)
        self._thread.start()

    def _gather(self) -> None:
        try:
            for where in self._rows:
                slot = self._free.get()
                if self._closed.is_set():
                    return
                if self._copies[slot] is not None:
                    self._copies[slot].synchronize()
                torch.index_select(self._source, 0, where, out=self._buffers[slot])
                self._ready.put(slot)
        except BaseException as error:  # shown where the batch is asked for
            self._ready.put(error)

    def take(self) -> int:
        """The slot of the next batch."""
        found = self._ready.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def __len__(self) -> int:
        return len(self._rows)

    def buffer(self, slot: int) -> Tensor:
        return self._buffers[slot]

    def give_back(self, slot: int, copied: Any = None) -> None:
        self._copies[slot] = copied
        self._free.put(slot)

    def gathered(self) -> Iterator[Tensor]:
        for _ in range(len(self)):
            slot = self.take()
            out = self._buffers[slot].clone()
            self.give_back(slot)
            yield out

    def close(self) -> None:
        self._closed.set()
        self._free.put(0)
        self._thread.join()


def _copied(reader: _Reader, device: torch.device) -> Iterator[Tensor]:
    side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    waiting: tuple[Tensor, Any] | None = None
    for _ in range(len(reader)):
        slot = reader.take()
        with torch.cuda.stream(side):
            batch = reader.buffer(slot).to(device, non_blocking=True)
            copied: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(side)
        reader.give_back(slot, copied)
        if waiting is not None:
            yield _arrived(*waiting, device)
        waiting = batch, copied
    if waiting is not None:
        yield _arrived(*waiting, device)


def _arrived(batch: Tensor, copied: Any, device: torch.device) -> Tensor:
    current = torch.cuda.current_stream(device)
    current.wait_event(copied)
    batch.record_stream(current)
    return batch
