"""Which of several processes this one is, as `accelerate launch` and `torchrun` tell it."""

from __future__ import annotations

import os

from sebra.errors import UsageError


def size() -> int:
    """How many processes work together."""
    return max(1, int(os.environ.get("WORLD_SIZE") or "1"))


def number() -> int:
    """This process's number, from 0; 0 is the main one."""
    return int(os.environ.get("RANK") or "0") if size() > 1 else 0


def is_main() -> bool:
    """Whether this process is the one that writes files and prints."""
    return number() == 0


def require_one(what: str) -> None:
    """Refuses something that several processes cannot do together."""
    if size() > 1:
        raise UsageError(f"{what}: works in one process only; start it without a launcher")
