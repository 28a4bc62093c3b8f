"""Arrays that are computed once and memory-mapped ever after.

An entry is a folder with the array and a small JSON file. It is written under a temporary name in
the same place and renamed when it is complete, so a reader sees a whole entry or none, and of two
processes that build the same entry at once the first one wins. The JSON file holds a checksum of
all of it, which is compared when the entry is opened: reading an array costs that much once, at the
speed of the disk, and leaves it in the system's memory for who reads it next.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cache as once
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.checksums import of_file, of_json, of_parts
from sebra.errors import SebraError, reason
from sebra.places import cache_root
from sebra.processes import is_alive

log = logging.getLogger(__name__)

Entry = tuple[npt.NDArray[Any], dict[str, Any]]  # an array, read-only, and what is kept beside it
Parts = Sequence[str | int | bytes]
Fill = Callable[[npt.NDArray[Any]], dict[str, Any]]
Fits = Callable[[npt.NDArray[Any], dict[str, Any]], object]  # raises where an entry is another kind
PASSING = "passing"  # something was wrong that may be right the next time
_ARRAY, _META = "array.npy", "meta.json"
_CHECKSUM = "checksum"
_TEMPORARY = ".building-"
_ABANDONED_SECONDS = 2 * 24 * 3600  # for a builder on another machine, which cannot be asked


def digest(parts: Iterable[str | int | bytes]) -> str:
    """A key from the parts that decide an entry's content, in order."""
    state = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogateescape")
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:32]


def _checksum(array: Path, meta: dict[str, Any]) -> str:
    return of_parts([of_file(array), of_json(meta)])


class Cache:
    """Entries by kind and key. `note` tells the user where the cache is when it had to move."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = Path(os.path.abspath(root or cache_root()))
        self.note: str | None = None

    def path(self, kind: str, key: str) -> Path:
        """The folder of an entry, whether or not it exists."""
        return self.root / kind / key

    def find(self, kind: str, key: str, fits: Fits) -> Entry | None:
        """An entry, read-only, or None where there is no complete one that `fits` takes."""
        folder = self.path(kind, key)
        try:
            meta = json.loads((folder / _META).read_text(encoding="utf-8"))
            if meta.pop(_CHECKSUM, "") != _checksum(folder / _ARRAY, meta):
                raise ValueError("its content is not what was written")
            array = np.load(folder / _ARRAY, mmap_mode="r", allow_pickle=False)
            fits(array, meta)
        except FileNotFoundError:
            return None
        except Exception as error:  # a damaged entry can make the readers raise nearly anything
            log.warning("cache entry %s is damaged and is made again (%s)", folder, reason(error))
            self.drop(kind, key)
            return None
        return array, meta

    def drop(self, kind: str, key: str) -> None:
        """Forgets an entry; who has mapped it keeps it."""
        shutil.rmtree(self.path(kind, key), ignore_errors=True)

    def known(self, kind: str, key_parts: Parts, fits: Fits) -> Entry | None:
        """What `array` built from these parts and would not build again, or None."""
        found = self.find(kind, digest(key_parts), fits)
        return None if found is None or found[1].get(PASSING) else found

    def array(
        self,
        kind: str,
        key_parts: Parts,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        fill: Fill,
        fits: Fits = lambda array, meta: None,
    ) -> Entry:
        """The read-only memory map of an entry and its meta data, built by `fill` if missing.

        `fill` writes into the array it is given and returns what to keep beside it (JSON-able); an
        entry whose meta data has a true `PASSING` serves this run alone and is built again.
        `key_parts` must decide the content, shape and type. `fits` raises where an entry cannot be
        read as what `fill` makes; a whole entry may be a stranger's.
        """

        def as_asked(array: npt.NDArray[Any], meta: dict[str, Any]) -> None:
            if array.shape != tuple(shape) or array.dtype != dtype:
                raise ValueError(f"it has shape {array.shape} and type {array.dtype}")
            fits(array, meta)

        found = self.known(kind, key_parts, as_asked)
        if found is not None:
            return found
        key = digest(key_parts)
        self.drop(kind, key)
        building = self._start(kind)
        try:
            target = _new_array(building / _ARRAY, shape, np.dtype(dtype))
            meta = fill(target)
            if isinstance(target, np.memmap):
                target.flush()
            del target
            kept = {**meta, _CHECKSUM: _checksum(building / _ARRAY, meta)}
            (building / _META).write_text(json.dumps(kept), encoding="utf-8")
            for name in (_ARRAY, _META):
                _sync(building / name)
            mine = np.load(building / _ARRAY, mmap_mode="r"), json.loads(json.dumps(meta))
            self._publish(building, self.path(kind, key))
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return self.find(kind, key, as_asked) or mine  # it may be damaged or gone again

    def _start(self, kind: str) -> Path:
        """An empty folder to build in; moves the cache to a temporary place if need be."""
        name = f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            (self.root / kind).mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self.root / kind)
            (self.root / kind / name).mkdir()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            self._move(error)
            (self.root / kind / name).mkdir(parents=True)
        return self.root / kind / name

    def _move(self, error: OSError) -> None:
        place = _temporary_root()
        self.note = (
            f"cache {self.root} cannot be written ({error.strerror}): using {place} for this run; "
            "set SEBRA_CACHE to a folder you can write to"
        )
        log.warning(self.note)
        self.root = place

    @staticmethod
    def _publish(building: Path, place: Path) -> None:
        with contextlib.suppress(OSError):  # another process was first, or clears damage away
            os.rename(building, place)
            _sync(place.parent)


def user_cache() -> Cache:
    """The one of this process at the user's place, so that a move to a temporary one is kept."""
    return _cache_at(cache_root())


_cache_at = once(Cache)


def _new_array(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if 0 in shape:  # an empty file cannot be mapped
        np.save(path, np.zeros(shape, dtype))
        return np.zeros(shape, dtype)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    _reserve(path)
    return array


def _reserve(path: Path) -> None:
    """Takes the disk space now: writing to a map on a full disk would kill the process."""
    if not hasattr(os, "posix_fallocate"):
        return
    size = path.stat().st_size
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                return  # the file system cannot reserve; it may still have room
            raise SebraError(
                f"{path.parent.parent}: the cache needs {size / 2**20:.2f} MiB more disk space; "
                "free some or set SEBRA_CACHE to another disk"
            ) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@once
def _temporary_root() -> Path:
    place = Path(tempfile.mkdtemp(prefix="sebra-cache-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def _remove_abandoned(folder: Path) -> None:
    """Removes what builders left behind that are no longer alive."""
    for place in folder.glob(f"{_TEMPORARY}*"):
        host, _, pid = place.name.removeprefix(_TEMPORARY).rpartition("-")[0].rpartition("-")
        try:
            if host == socket.gethostname():
                gone = not is_alive(int(pid))
            else:
                gone = time.time() - place.stat().st_mtime > _ABANDONED_SECONDS
        except (FileNotFoundError, ValueError):  # gone already, or a name that is not ours
            continue
        if gone:
            shutil.rmtree(place, ignore_errors=True)
