"""Listing image files: names only, nothing is opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.table import SPLITS
from sebra.whole import utf8

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"}
)
SPLIT_NAMES = {
    "train": 0,
    "training": 0,
    "val": 1,
    "valid": 1,
    "validation": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}


def is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def require_folder(path: Path, what: str) -> Path:
    """The absolute path of an existing folder."""
    if not path.exists():
        raise UsageError(f"{path}: no such folder ({what})")
    if not path.is_dir():
        raise UsageError(f"{path}: is a file, expected a folder ({what})")
    return Path(os.path.abspath(path))


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in `folder`, sorted; hidden ones and `__…` are left out."""
    entries = _scan(folder)
    return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__")))


def images_in(folder: Path) -> list[str]:
    """Names of the images directly in `folder`, sorted."""
    return sorted(e.name for e in _scan(folder) if is_image(e.name) and not e.is_dir())


def images_under(folder: Path) -> list[Path]:
    """All images in `folder` and in the folders below it, sorted by path."""
    found: list[Path] = []
    for where, folders, names in os.walk(folder, onerror=_unlistable):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += [Path(where, name) for name in sorted(names) if is_image(name)]
    return found


def ids_of(paths: Sequence[Path], root: Path) -> npt.NDArray[np.object_]:
    """Ids: the path relative to `root` with `/`, in UTF-8 (see `utf8`)."""
    ids = np.empty(len(paths), dtype=object)
    start = len(str(root).rstrip(os.sep)) + 1
    for i, path in enumerate(paths):
        ids[i] = utf8(str(path)[start:].replace(os.sep, "/"))
    return ids


def split_code(name: str, where: str) -> int:
    """The index into `SPLITS` of a split's name; `where` begins the message if it is unknown."""
    code = SPLIT_NAMES.get(name.strip().lower())
    if code is None:
        raise UsageError(f"{where}: unknown split {name!r} (expected {', '.join(SPLITS)})")
    return code


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        _unlistable(error)


def _unlistable(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename}: cannot be listed ({error.strerror})") from error
