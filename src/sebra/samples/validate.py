"""What must hold of every data set before any work starts, whatever it was read from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.table import SPLITS, FeatureArray, ImageArray, ImageFiles, Samples

_LARGEST = 1e30  # float32, in which networks compute, ends soon after
FEATURE_CHUNK = 4_000_000  # values looked at in one go


def validate(samples: Samples) -> Samples:
    """The samples themselves, or a `UsageError` that says what is wrong with them."""
    where = samples.source or samples.name
    if len(samples) == 0:
        raise UsageError(f"{where}: holds no samples")
    _lengths_agree(samples, where)
    _codes_in_range(samples, where)
    _ids_unique(samples, where)
    require_trainable(samples)
    if isinstance(samples.content, FeatureArray):
        check_features(samples.content.values, where)
    return samples


def require_trainable(samples: Samples) -> None:
    """At least two classes, each with at least two training samples."""
    where = samples.source or samples.name
    if len(samples.classes) < 2:
        only = ", ".join(samples.classes) or "none"
        raise UsageError(f"{where}: needs at least two classes, found {only}")
    train = samples.rows("train")
    if len(train) == 0:
        raise UsageError(f"{where}: has no training samples (split {SPLITS[0]!r})")
    counts = np.bincount(samples.labels[train], minlength=len(samples.classes))
    for name, count in zip(samples.classes, counts, strict=True):
        if count < 2:
            number = "1 training sample" if count == 1 else f"{count} training samples"
            raise UsageError(f"{where}: class '{name}' has {number}, every class needs at least 2")


def check_features(values: npt.NDArray[Any], where: str) -> None:
    """Features are an n x d table of finite numbers; read in pieces, so a memory map stays one."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise UsageError(f"{where}: X must be a table n x d, has shape {values.shape}")
    if values.dtype.kind not in "fiub":
        raise UsageError(f"{where}: X must hold numbers, has type {values.dtype}")
    if values.dtype.kind != "f":
        return
    largest = min(_LARGEST, float(np.finfo(values.dtype).max))
    step = max(1, FEATURE_CHUNK // values.shape[1])
    for start in range(0, len(values), step):
        part = values[start : start + step]
        finite = (np.abs(part) <= largest).all(axis=1)
        if not finite.all():
            at = int(np.argmin(finite))
            what = "NaN or infinity" if not np.isfinite(part[at]).all() else "a number above 1e30"
            raise UsageError(
                f"{where}: X has {what} in row {start + at}; clean, scale or drop it first"
            )


def _content_length(samples: Samples) -> int:
    content = samples.content
    if isinstance(content, ImageFiles):
        return len(content.paths)
    if isinstance(content, ImageArray | FeatureArray):
        return len(content.rows)
    return len(content.first)


def _lengths_agree(samples: Samples, where: str) -> None:
    n = len(samples)
    lengths = {"y": len(samples.labels), "split": len(samples.split)}
    lengths["content"] = _content_length(samples)
    lengths |= {name: len(a.codes) for name, a in samples.attributes.items()}
    for name, length in lengths.items():
        if length != n:
            raise UsageError(f"{where}: {name} has {length} rows, expected {n}")


def _codes_in_range(samples: Samples, where: str) -> None:
    if samples.labels.min() < 0 or samples.labels.max() >= len(samples.classes):
        raise UsageError(f"{where}: labels outside 0..{len(samples.classes) - 1}")
    if samples.split.min() < 0 or samples.split.max() >= len(SPLITS):
        raise UsageError(f"{where}: unknown split (expected {', '.join(SPLITS)})")


def _ids_unique(samples: Samples, where: str) -> None:
    ids = samples.ids.tolist()
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for row, name in enumerate(ids):
        if name in seen:
            raise UsageError(f"{where}: id '{name}' occurs twice (again in row {row})")
        seen.add(name)
