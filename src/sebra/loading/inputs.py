"""The content of every sample, indexable by row on the device."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.loading.streaming import read_ahead
from sebra.loading.texts import TokenArray
from sebra.samples.table import FeatureArray, ImageArray

_COPY_ROWS_BYTES = 256 * 2**20


class Inputs:
    """Images (uint8, n x h x w x 3), features (n x d floats) or token rows of every sample.

    On a GPU the array is copied to the device when it takes less than `share` of the free memory,
    else batches are streamed from the memory map through pinned memory (`read`). On a CPU the
    memory map itself is indexed, so that pages belong to the file and not to the process.
    `stream` decides instead where it is given.
    """

    map_reads: ClassVar[int] = 0  # batches that were fetched while the device waited

    def __init__(
        self,
        content: ImageArray | FeatureArray | TokenArray,
        device: torch.device,
        share: float = 0.5,
        stream: bool | None = None,
    ) -> None:
        self.is_image = isinstance(content, ImageArray)
        self.is_text = isinstance(content, TokenArray)
        array = content.pixels if isinstance(content, ImageArray) else content.values
        self._array = array
        self._rows = torch.from_numpy(np.ascontiguousarray(content.rows))
        self._identity = bool(
            len(content.rows) == len(array) and (content.rows == np.arange(len(array))).all()
        )
        self.device = device
        self.shape: tuple[int, ...] = tuple(array.shape[1:])
        if stream is None:
            stream = device.type != "cpu" and not _fits(array, len(content.rows), device, share)
        self.resident = not stream
        self._tensor: Tensor | None = None
        self._staged: tuple[Tensor, Tensor] | None = None
        if device.type == "cpu" and self.resident:
            self._tensor = _as_tensor(array)
        elif self.resident:
            self._tensor = _copy_to_device(array, content.rows, self._identity, device)
            self._identity = True
        self._rows = self._rows.to(device if self.resident else "cpu")

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: Tensor) -> Tensor:
        """Rows of the data set as a batch on the device; images as n x 3 x h x w, channels last."""
        if self._tensor is not None:
            where = rows if self._identity else self._rows[rows]
            out = self._tensor.index_select(0, where)
        else:
            Inputs.map_reads += 1
            where = self._rows[rows.cpu()]
            host = torch.from_numpy(self._array[where.numpy()])
            if self.device.type == "cuda":
                host = host.pin_memory()
            out = host.to(self.device, non_blocking=True)
        return self._shaped(out)

    def read(self, rows: Tensor) -> Iterator[Tensor]:
        """`batch(rows[i])` for every i (`rows`: steps x batch); streamed ones are read ahead."""
        if self.resident:
            yield from (self.batch(where) for where in rows)
        else:
            source = _as_tensor(self._array)
            for out in read_ahead(source, self._rows[rows.cpu()], self.device):
                yield self._shaped(out)

    def stage(self, index: Tensor, batch: Tensor) -> None:
        """From here on `batch` is the content of the samples `index`, this very tensor."""
        self._staged = index, batch

    def staged(self, index: Tensor) -> Tensor | None:
        """What was staged for this very tensor of indices."""
        if self._staged is None or self._staged[0] is not index:
            return None
        return self._staged[1]

    def _shaped(self, out: Tensor) -> Tensor:
        return out.permute(0, 3, 1, 2) if self.is_image else out


def _as_tensor(array: npt.NDArray[Any]) -> Tensor:
    """The array's own memory as a tensor; nothing here writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _fits(array: npt.NDArray[Any], rows: int, device: torch.device, share: float) -> bool:
    free, _ = torch.cuda.mem_get_info(device)
    return rows * array[:1].nbytes <= share * free


def _copy_to_device(
    array: npt.NDArray[Any], rows: npt.NDArray[np.int64], identity: bool, device: torch.device
) -> Tensor:
    dtype = torch.from_numpy(np.empty(0, dtype=array.dtype)).dtype
    out = torch.empty((len(rows), *array.shape[1:]), dtype=dtype, device=device)
    step = max(1, _COPY_ROWS_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(rows), step):
        stop = min(len(rows), start + step)
        block = array[start:stop] if identity else array[rows[start:stop]]
        out[start:stop] = _as_tensor(np.ascontiguousarray(block)).to(device)
    return out


def content_key(content: ImageArray | TokenArray) -> str:
    """Identifies pixels or tokens: the cache entry they are mapped from, or their content."""
    array: Any = content.pixels if isinstance(content, ImageArray) else content.values
    state = hashlib.sha256(np.ascontiguousarray(content.rows).tobytes())
    name = getattr(array, "filename", None)
    if name is not None:
        state.update(str(Path(name).resolve()).encode())
    else:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:32]
