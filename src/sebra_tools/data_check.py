"""What a data set holds, in figures: for `data check` and for reports."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.samples.leakage import leakage, leakage_note
from sebra.samples.picture import decode_image
from sebra.samples.table import (
    SPLITS,
    Fault,
    ImageFiles,
    Samples,
    aligned_codes,
    alignment,
    true_groups,
    untelling,
)

MAX_GROUP_ATTRIBUTES = 6


def describe(samples: Samples, deep: bool = False) -> dict[str, Any]:
    """A JSON-able account: classes, splits, attributes, groups, faults, leakage, notes.

    `deep` also opens every image file (unreadable ones become faults) and looks for samples with
    the same content in more than one split.
    """
    if deep:
        samples = samples.without(_unreadable(samples))
    facts: dict[str, Any] = {
        "name": samples.name,
        "source": samples.source,
        "kind": samples.kind,
        "samples": len(samples),
        "splits": {split: len(samples.rows(split)) for split in SPLITS},
        "classes": _classes(samples),
        "attributes": _attributes(samples),
        "groups": _groups(samples),
        "faults": [{"id": f.id, "reason": f.reason} for f in samples.faults],
        "deep": deep,
    }
    if deep:
        facts["leakage"] = leakage(samples)
    facts["notes"] = _notes(samples, facts)
    return facts


def _classes(samples: Samples) -> list[dict[str, Any]]:
    table = _counts(samples.labels, samples.split, len(samples.classes))
    return [{"name": name, "counts": table[c]} for c, name in enumerate(samples.classes)]


def _attributes(samples: Samples) -> list[dict[str, Any]]:
    found = []
    for name, attribute in samples.attributes.items():
        aligned = aligned_codes(samples, attribute)
        found.append(
            {
                "name": name,
                "levels": list(attribute.levels),
                "missing": int((attribute.codes < 0).sum()),
                "aligned": {
                    label: attribute.levels[code]
                    for label, code in zip(samples.classes, aligned, strict=True)
                },
                "fixed_by_layout": attribute.aligned is not None,
            }
        )
    return found


def _groups(samples: Samples) -> list[dict[str, Any]]:
    """Per class and aligned/conflicting combination, the number of samples in each split."""
    names, _ = alignment(samples)
    if not names or len(names) > MAX_GROUP_ATTRIBUTES:
        return []
    groups = 2 ** len(names)
    keys = samples.labels * groups + true_groups(samples)
    table = _counts(keys, samples.split, groups * len(samples.classes))
    rows = []
    for key, counts in enumerate(table):
        label, group = divmod(key, groups)
        bits = f"{group:0{len(names)}b}"
        states = ["aligned" if bit == "0" else "conflicting" for bit in bits]
        alignments = dict(zip(names, states, strict=True))
        name = ", ".join([samples.classes[label], *(f"{k} {v}" for k, v in alignments.items())])
        rows.append(
            {
                "name": name,
                "class": samples.classes[label],
                "alignment": alignments,
                "counts": counts,
            }
        )
    return rows


def _counts(
    keys: npt.NDArray[np.int64], split: npt.NDArray[np.int8], number: int
) -> list[dict[str, int]]:
    table = np.bincount(keys * len(SPLITS) + split, minlength=number * len(SPLITS))
    return [
        dict(zip(SPLITS, (int(v) for v in row), strict=True))
        for row in table.reshape(number, len(SPLITS))
    ]


def _unreadable(samples: Samples) -> list[Fault]:
    """Faults of image files: decoded whole, as a broken file may still have a good header."""
    if not isinstance(samples.content, ImageFiles):
        return []
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("ignore")  # what a decoder merely dislikes is no fault
        reasons = list(pool.map(_reason, samples.content.paths, chunksize=64))
    return [
        Fault(str(name), reason)
        for name, reason in zip(samples.ids, reasons, strict=True)
        if reason is not None
    ]


def _reason(path: Path) -> str | None:
    try:
        decode_image(path, 32)
    except ValueError as error:
        return str(error)
    return None


def _notes(samples: Samples, facts: dict[str, Any]) -> list[str]:
    notes = []
    for split in ("val", "test"):
        if facts["splits"][split] == 0:
            notes.append(f"no {split} split")
    if not samples.attributes:
        notes.append("no attributes: a ranking can be made but not scored against true groups")
    notes += untelling(samples)
    train = [row["counts"]["train"] for row in facts["classes"]]
    if min(train) * 10 < max(train):
        notes.append(f"classes are unequal in training: {min(train)} to {max(train)} samples")
    if samples.faults:
        notes.append(f"{len(samples.faults)} samples cannot be read and would be left out")
    leaks = leakage_note(facts["leakage"]) if "leakage" in facts else None
    return notes if leaks is None else [*notes, leaks]
