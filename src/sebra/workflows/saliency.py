"""`saliency.npz`: where each pattern sits in the pictures of each class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError, reason
from sebra.whole import written

FILE = "saliency.npz"
# By pattern and class: a map (0 to 1), and the mean picture under it.
Maps = dict[str, dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]]


def save_saliency(folder: Path, maps: Maps) -> None:
    """Writes the maps beside the ranking; nothing where there are none."""
    names = [(bias, label) for bias, found in maps.items() for label in found]
    if not names:
        return
    arrays: dict[str, Any] = {"names": np.array(json.dumps(names))}
    for i, (bias, label) in enumerate(names):
        arrays[f"map_{i}"], arrays[f"mean_{i}"] = maps[bias][label]
    with written(folder / FILE) as (temporary,), temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_saliency(folder: Path) -> Maps:
    """What `save_saliency` wrote; empty where it wrote nothing."""
    path = folder / FILE
    if not path.is_file():
        return {}
    out: Maps = {}
    try:
        with np.load(path, allow_pickle=False) as held:
            for i, (bias, label) in enumerate(json.loads(str(held["names"]))):
                heat, mean = held[f"map_{i}"], held[f"mean_{i}"]
                if heat.ndim != 2 or mean.ndim != 3 or mean.dtype != np.uint8:
                    raise ValueError("its arrays are no pictures")
                out.setdefault(str(bias), {})[str(label)] = heat, mean
    except Exception as error:  # a broken archive can make the reader raise nearly anything
        raise UsageError(f"{path}: not the maps of a run ({reason(error)})") from error
    return out
