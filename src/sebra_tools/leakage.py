"""The same content in more than one split: what was trained on must not be tested on."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sebra.samples.table import ImageArray, ImageFiles, Samples, Texts

SHOWN = 20
_FIRST_VALUES = 16

Key = Callable[[int], Hashable]


def warning(samples: Samples) -> str | None:
    """What a person should hear before anything is trained; None where nothing leaks."""
    return leakage_note(leakage(samples))


def leakage(samples: Samples) -> dict[str, Any]:
    """Samples whose content is the same, byte for byte, in more than one split.

    count: contents that are. examples: the ids of the first of them, training samples first. A file
    is read only if another split has one of its size.
    """
    rows = np.argsort(samples.split, kind="stable").tolist()
    for key in _keys(samples):
        groups = _shared(samples, rows, key)
        rows = [row for group in groups for row in group]
    return {"count": len(groups), "examples": [_named(samples, group) for group in groups[:SHOWN]]}


def _named(samples: Samples, group: list[int]) -> list[str]:
    """Ids of the same content: one of each split first, for those alone may be shown."""
    splits = samples.split[group].tolist()
    first = [splits.index(split) for split in sorted(set(splits))]
    others = [i for i in range(len(group)) if i not in first]
    return [str(samples.ids[group[i]]) for i in (*first, *others)]


def leakage_note(found: Mapping[str, Any]) -> str | None:
    """What a person should know of what `leakage` found; None where there is none."""
    count = found["count"]
    if not count:
        return None
    what = "1 content occurs" if count == 1 else f"{count} contents occur"
    same = " = ".join(found["examples"][0][:3])
    return (
        f"leakage: {what} in more than one split (first: {same}); a model "
        "knows these from training, so figures on held-out samples are too good"
    )


def _shared(samples: Samples, rows: Iterable[int], key: Key) -> list[list[int]]:
    """Groups of rows with the same key that lie in more than one split."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for row in rows:
        found = key(row)
        if found is not None:
            places[found].append(row)
    return [group for group in places.values() if len({int(samples.split[r]) for r in group}) > 1]


def _keys(samples: Samples) -> tuple[Key, Key]:
    """A key that costs little and differs only where the content does, and one of all content."""
    content = samples.content
    if isinstance(content, ImageFiles):
        paths = content.paths
        return (
            lambda row: _of_file(paths[row], lambda path: path.stat().st_size),
            lambda row: _of_file(paths[row], lambda path: _digest(path.read_bytes())),
        )
    if isinstance(content, Texts):
        first, second = content.first, content.second or ("",) * len(content.first)
        return lambda row: first[row], lambda row: (first[row], second[row])
    array = content.pixels if isinstance(content, ImageArray) else content.values
    middle = array.shape[1] // 2  # a row of a picture
    part = middle if isinstance(content, ImageArray) else slice(_FIRST_VALUES)
    return (
        lambda row: array[content.rows[row], part].tobytes(),
        lambda row: _digest(array[content.rows[row]].tobytes()),
    )


def _of_file(path: Path, of: Callable[[Path], Hashable]) -> Hashable:
    """None of a file that vanished, which is a fault elsewhere."""
    try:
        return of(path)
    except OSError:
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
