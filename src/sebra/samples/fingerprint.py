"""A short text that changes with the data: whether a checkpoint was made from the same samples."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.samples.table import Content, FeatureArray, ImageFiles, Samples, Texts

_AT_ONCE, _THREADS = 256, 8  # files that a thread asks for at once


def fingerprint(samples: Samples) -> str:
    """Number of samples and a digest of ids, labels, splits, classes and content.

    Of files only size and time are looked at, also of those that are mapped; arrays in memory are
    read whole. Attributes do not count: no ranking depends on them.
    """
    state = hashlib.sha256()
    for text in (*samples.classes, "", *samples.ids.tolist()):
        state.update(f"{text}\0".encode("utf-8", "backslashreplace"))
    for part in (samples.labels, samples.split):
        state.update(np.ascontiguousarray(part).tobytes())
    _add_content(state, samples.content)
    return f"{len(samples)} samples, {state.hexdigest()[:12]}"


def _add_content(state: Any, content: Content) -> None:
    if isinstance(content, ImageFiles):
        state.update("".join(stamped(content.paths)).encode())
    elif isinstance(content, Texts):
        for text in (*content.first, "", *(content.second or ())):
            state.update(f"{text}\0".encode("utf-8", "backslashreplace"))
    else:
        array = content.values if isinstance(content, FeatureArray) else content.pixels
        state.update(np.ascontiguousarray(content.rows).tobytes())
        _add_array(state, array)


def _add_array(state: Any, array: npt.NDArray[Any]) -> None:
    state.update(f"{array.shape} {array.dtype.str}".encode())
    file = getattr(array, "filename", None)
    if isinstance(array, np.memmap) and file is not None:
        state.update(stamp(Path(file)).encode())
    else:
        state.update(np.ascontiguousarray(array).data)


def stamped(paths: Sequence[Path]) -> list[str]:
    """What changes with the size, time or permissions of each file.

    Several are asked for at a time: a file system may be slow.
    """
    parts = [paths[k : k + _AT_ONCE] for k in range(0, len(paths), _AT_ONCE)]
    with ThreadPoolExecutor(min(_THREADS, len(parts) or 1)) as pool:
        return list(chain(*pool.map(lambda part: [stamp(path) for path in part], parts)))


def stamp(path: Path) -> str:
    """That of one file."""
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{error.errno};"
    return f"{found.st_size} {found.st_mtime_ns} {found.st_mode};"
