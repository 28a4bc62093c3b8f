"""The errors a user can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SebraError(Exception):
    """Something went wrong that the user should read in one line (exit status 1)."""

    exit_status = 1


class UsageError(SebraError):
    """Wrong options or wrong data: names the file, row or option and what to do (exit status 2)."""

    exit_status = 2


class NumericalError(SebraError):
    """Training left the finite numbers; the message names the epoch and the batch."""


class CollapsedError(SebraError):
    """The ranking put all samples into one bucket; the message says what to change."""


class Interrupted(SebraError):
    """Stopped by a signal after writing a checkpoint (exit status 130)."""

    exit_status = 130


def check(config: Any, checks: Mapping[str, bool]) -> None:
    """Refuses a configuration, naming the first field whose check is false."""
    for name, good in checks.items():
        if not good:
            raise UsageError(f"--set {name}={getattr(config, name)!r}: not a valid value")
