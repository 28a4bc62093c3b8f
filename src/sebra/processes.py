"""Which of several processes this one is, as `accelerate launch` and `torchrun` tell it."""

from __future__ import annotations

import os

from sebra.errors import UsageError

_MOST = 100_000


def size() -> int:
    """How many processes work together."""
    return max(1, _count("WORLD_SIZE", 1, _MOST))


def number() -> int:
    """This process's number, from 0; 0 is the main one."""
    return _count("RANK", 0, size() - 1) if size() > 1 else 0


def is_main() -> bool:
    """Whether this process is the one that writes files and prints."""
    return number() == 0


def require_one(what: str) -> None:
    """Refuses something that several processes cannot do together."""
    if size() > 1:
        raise UsageError(f"{what}: works in one process only; start it without a launcher")


def require_launcher() -> None:
    """Refuses a number of processes without the rest of what a launcher sets."""
    missing = [n for n in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(n)]
    if missing:
        raise UsageError(
            f"WORLD_SIZE={size()} without {', '.join(missing)}: start several processes by "
            "`accelerate launch -m sebra …`, or unset WORLD_SIZE for one"
        )
    _count("MASTER_PORT", 1, 65_535)


def _count(name: str, default: int, most: int) -> int:
    text = (os.environ.get(name) or "").strip()
    value = default if not text else int(text) if text.isdecimal() and len(text) < 10 else -1
    if not 0 <= value <= most:
        raise UsageError(f"{name}={text[:40]}: expected a whole number from 0 to {most}")
    return value


def is_alive(pid: int) -> bool:
    """Whether a process of this machine is still there, to tell its files from abandoned ones."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
