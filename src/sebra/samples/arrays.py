"""Features and labels in NumPy files; the folder form is memory-mapped."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError, reason
from sebra.places import most_bytes
from sebra.samples.levels import as_attribute, encode_labels, encode_split
from sebra.samples.table import Attribute, FeatureArray, Samples

Load = Callable[[str], npt.NDArray[Any]]


def is_array_folder(path: Path) -> bool:
    return (path / "X.npy").is_file() or (path / "y.npy").is_file()


def read_array_folder(path: Path) -> Samples:
    """`X.npy` (mapped, never loaded whole), `y.npy`, optional `split.npy`, attributes."""
    files = {file.stem: file for file in sorted(path.glob("*.npy"))}
    return _read(list(files), lambda name: _load_npy(files[name]), path)


def read_npz(path: Path) -> Samples:
    """`X`, `y`, optional `split`; every other 1-D array of n values is an attribute."""
    with _opened(path) as archive:
        return _read(list(archive.files), lambda name: _from_archive(archive, name, path), path)


def read_rows(path: Path) -> npt.NDArray[Any]:
    """`X` alone, of a folder or an archive: nothing else is looked at."""
    if path.is_dir():
        file = path / "X.npy"
        return _table(["X"] if file.is_file() else [], lambda _: _load_npy(file), path)
    with _opened(path) as archive:
        return _table(archive.files, lambda name: _from_archive(archive, name, path), path)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        whole = path.is_file() and zipfile.is_zipfile(path)
        archive = np.load(path, allow_pickle=False) if whole else None
    except Exception as error:  # a broken archive can make the reader raise nearly anything
        raise UsageError(f"{path}: not a readable .npz file ({reason(error)})") from error
    if archive is None:
        raise UsageError(f"{path}: not a readable .npz file")
    with archive:
        # An archive of a few kilobytes can claim to hold terabytes; a true one is better mapped.
        _require_memory(sum(e.file_size for e in archive.zip.infolist()), path, "unpacks to")
        yield archive


def _require_memory(size: int, path: Path, what: str) -> None:
    if size > most_bytes():
        raise UsageError(
            f"{path}: {what} {size / 2**30:.0f} GiB, more than the memory of this machine; use a "
            "folder with X.npy (of type float32 or float64) and y.npy, which is not loaded whole"
        )


def _read(names: list[str], load: Load, path: Path) -> Samples:
    where = str(path)
    values, y = _table(names, load, path), _array("y", names, load, path)
    n = len(values)
    if y.shape != (n,):
        raise UsageError(f"{where}: y has shape {y.shape}, expected ({n},) as X has {n} rows")
    labels, classes = encode_labels(y, where, "y")
    return Samples(
        ids=np.array(list(map(str, range(n))), dtype=object),
        labels=labels,
        classes=classes,
        split=_split(names, load, n, where),
        content=FeatureArray(values, np.arange(n, dtype=np.int64)),
        attributes=_attributes(names, load, n),
        name=path.stem,
    )


def _array(name: str, names: Sequence[str], load: Load, path: Path) -> npt.NDArray[Any]:
    if name not in names:
        raise UsageError(f"{path}: no array {name!r} (has: {', '.join(names) or 'none'})")
    return load(name)


def _table(names: Sequence[str], load: Load, path: Path) -> npt.NDArray[Any]:
    values = _array("X", names, load, path)
    if values.ndim != 2:
        raise UsageError(f"{path}: X must be a table n x d, has shape {values.shape}")
    return _native(values, path)


def _native(values: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    """Numbers as torch has them: of this machine's byte order, and neither long nor unsigned."""
    wide = {"f": np.float64, "u": np.float64 if values.dtype.itemsize > 4 else np.int64}
    kind = values.dtype.kind
    if kind == "b":  # torch does not subtract them
        return values.view(np.uint8)
    odd = values.dtype.itemsize > 8 if kind == "f" else kind == "u" and values.dtype.itemsize > 1
    if kind not in "fiu" or (values.dtype.isnative and not odd):
        return values
    _require_memory(values.size * 8, path, f"X has type {values.dtype} and is converted to")
    converted: npt.NDArray[Any] = values.astype(
        wide[kind] if odd else values.dtype.newbyteorder("=")
    )
    return converted


def _split(names: list[str], load: Load, n: int, where: str) -> npt.NDArray[np.int8]:
    if "split" not in names:
        return np.zeros(n, dtype=np.int8)
    values = load("split")
    if values.shape != (n,):
        raise UsageError(f"{where}: split has shape {values.shape}, expected ({n},)")
    return encode_split(values, where)


def _attributes(names: list[str], load: Load, n: int) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for name in names:
        if name in {"X", "y", "split"}:
            continue
        values = load(name)
        attribute = as_attribute(name, values) if values.shape == (n,) else None
        if attribute is not None:
            found[name] = attribute
    return found


def _load_npy(file: Path) -> npt.NDArray[Any]:
    if not file.is_file():  # one would wait for what is written into a pipe
        raise UsageError(f"{file}: is no file")
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a broken header can make the reader raise nearly anything
        raise UsageError(f"{file}: not a readable .npy file ({reason(error)})") from error
    return array


def _from_archive(archive: Any, name: str, path: Path) -> npt.NDArray[Any]:
    try:
        array = archive[name]
    except (Exception, MemoryError) as error:  # the header may ask for any amount of memory
        raise UsageError(f"{path}: array {name!r} cannot be read ({reason(error)})") from error
    if not isinstance(array, np.ndarray):  # an entry that is no .npy file comes as bytes
        raise UsageError(f"{path}: {name!r} is not an array")
    return array
