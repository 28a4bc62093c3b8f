"""The errors a user can act on."""

from __future__ import annotations

import errno
import os
import signal

# What the system says of a name that the user gave; anything else is the machine's trouble.
_OF_A_NAME = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


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


class Interrupted(BaseException):
    """Stopped by a signal, with a checkpoint where there was one to write.

    Like Ctrl-C it is no `Exception`: nobody may take it for a picture that cannot be read. The exit
    status is 128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, text: str, signum: int = signal.SIGINT) -> None:
        super().__init__(text, signum)
        self.exit_status = 128 + signum

    def __str__(self) -> str:
        return str(self.args[0])


def stop(signum: int, frame: object) -> None:
    """The handler of a signal outside of a run that could save more than it has."""
    raise Interrupted("interrupted; run the same command with --resume to continue", signum)


def interruption(error: BaseException | None) -> Interrupted | None:
    """The signal behind an error, where a library was stopped and made another error of it."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__cause__ or error.__context__
    return error


def reason(error: BaseException) -> str:
    """What an error says, in one line."""
    said = str(getattr(error, "strerror", None) or error).strip()
    return said.splitlines()[0][:300] if said else type(error).__name__


def of_system(error: OSError) -> SebraError:
    """An error of the system as one line with the file; a `UsageError` if its name is to blame."""
    named = error.filename
    shown = os.fsdecode(named) if isinstance(named, (str, bytes, os.PathLike)) else ""
    text = f"{shown[:300]}: {reason(error)}" if shown else reason(error)
    return UsageError(text) if error.errno in _OF_A_NAME else SebraError(text)


def of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, or as torch says it of a processor or a GPU."""
    torchs = ("allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(words in str(error) for words in torchs)
