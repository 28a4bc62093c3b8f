"""Where things may be fetched from and kept: the environment variables that decide it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`$SEBRA_CACHE`, else `~/.cache/sebra`."""
    chosen = os.environ.get("SEBRA_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "sebra"


def offline() -> bool:
    """Whether `SEBRA_OFFLINE=1` forbids every access to the network."""
    return os.environ.get("SEBRA_OFFLINE") == "1"


def most_bytes() -> int:
    """What may be held in memory: what the machine has, or the process is limited to."""
    import psutil

    total = int(psutil.virtual_memory().total)
    try:
        import resource
    except ImportError:  # Windows
        return total
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min(total, *(total if limit == resource.RLIM_INFINITY else limit for limit in limits))
