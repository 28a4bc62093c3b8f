"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sebra.errors import SebraError, of_system, reason

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def written(*paths: Path) -> Iterator[tuple[Path, ...]]:
    """Names to write to, which become `paths` together when the block ends well.

    What cannot be written is a `SebraError` that names the file; what was there before stays.
    """
    passing = tuple(path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in paths)
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield passing
        for temporary in passing:
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
        for temporary, path in zip(passing, paths, strict=True):
            os.replace(temporary, path)
    except Exception as error:
        from safetensors import SafetensorError

        if not isinstance(error, (OSError, SafetensorError)):
            raise
        raise _unwritable(paths[0], passing, error) from error
    finally:
        for temporary in passing:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    """A text in UTF-8, its lines as they are; what UTF-8 cannot hold is escaped."""
    with written(path) as (temporary,):
        temporary.write_bytes(utf8(text).encode())
    return path


def regular(path: str | Path) -> Path:
    """The path, unless it is a pipe: one would wait for what is written into it."""
    found = Path(path)
    if found.is_fifo():
        raise OSError(errno.EINVAL, "is a pipe, not a file", str(found))
    return found


def utf8(text: str) -> str:
    r"""The text, with every byte of a file name that is not UTF-8 written as `\xNN`.

    Names stay apart that differ in such bytes only, and the same name always gives the same text.
    """
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a UTF-16 pair, from elsewhere than a file name
        data = text.encode("utf-8", "backslashreplace")
    return data.decode("utf-8", "backslashreplace")


def json_of(text: str) -> Any:
    """What a JSON text holds; a `ValueError` where it is none, or more than can be worked with."""
    try:
        return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _number(text: str) -> float:
    number, whole = float(text), text.lstrip("-").isdigit()
    if not math.isfinite(number) or (whole and abs(number) > 2**64):  # no array holds more
        raise ValueError(f"{text[:20]} is not a usable number")
    return int(text) if whole else number


def of_toml(text: str) -> dict[str, Any]:
    """What a TOML text holds; a `ValueError` where it is none, or holds what JSON could not."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    try:
        return dict(json_of(json.dumps(tomllib.loads(text))))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"a date, a time, or nested too deeply: {reason(error)}") from None


def _unwritable(path: Path, passing: tuple[Path, ...], error: Exception) -> SebraError:
    full = getattr(error, "errno", None) in _FULL or "No space left" in str(error)
    if not full:
        if isinstance(error, OSError):
            return type(of_system(error))(f"{path}: cannot be written ({reason(error)})")
        return SebraError(f"{path}: cannot be written ({reason(error)})")
    begun = sum(p.stat().st_size for p in passing if p.exists())
    room = (begun + shutil.disk_usage(path.parent).free) / 2**20
    return SebraError(
        f"{path}: cannot be written (No space left on device: it takes more than the {room:.2f} "
        "MiB that are free); earlier files and a checkpoint are unchanged: free some space and "
        "continue with --resume"
    )
