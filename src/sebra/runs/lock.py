"""One process at a time writes to a run folder."""

from __future__ import annotations

import os
from pathlib import Path

from sebra.errors import UsageError

_LOCKS: dict[int, tuple[int, int]] = {}  # open handles of this process: device and inode


def lock(path: Path) -> int | None:
    """Holds a folder for this process until `unlock`; the system lets go when it dies."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return None
    handle = os.open(path, os.O_RDONLY)
    found = os.fstat(handle)
    place = found.st_dev, found.st_ino
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        if place in _LOCKS.values():  # an earlier run of this process that nobody cleared away
            return None
        raise UsageError(
            f"--out: {path} is being written by another process; wait for it or choose another"
        ) from None
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    _LOCKS[handle] = place
    return handle


def unlock(handle: int | None) -> None:
    """Lets go of what `lock` holds."""
    if handle is not None:
        del _LOCKS[handle]
        os.close(handle)
