"""What a data set holds, in figures: for `data check` and for reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.samples.table import (
    SPLITS,
    Samples,
    aligned_codes,
    alignment,
    true_groups,
    untelling,
)
from sebra_tools.leakage import leakage, leakage_note
from sebra_tools.ordinary import Finding, findings, readable

MAX_GROUP_ATTRIBUTES = 6


def describe(samples: Samples, deep: bool = False) -> dict[str, Any]:
    """A JSON-able account: classes, splits, attributes, groups, faults, leakage, findings, notes.

    `deep` also opens every image file (unreadable ones become faults), looks for samples with the
    same content in more than one split, and runs the ordinary checks.
    """
    if deep:
        samples, small = readable(samples)
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
        found = findings(samples, small)
        facts["findings"] = [asdict(finding) for finding in found]
        said = [_line(finding) for finding in found if finding.kind != "leakage"]
        leaks = [finding for finding in found if finding.kind == "leakage"]
        exact = leakage_note(facts["leakage"])
        said += [_line(leak) for leak in leaks] or ([exact] if exact is not None else [])
    facts["notes"] = [*_notes(samples, facts), *(said if deep else ())]
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


def _line(finding: Finding) -> str:
    """A finding as a person reads it, with its first example."""
    first = f"; first: {' = '.join(finding.examples[0][:3])}" if finding.examples else ""
    return f"{finding.kind}: {finding.text}{first}"


def _notes(samples: Samples, facts: dict[str, Any]) -> list[str]:
    notes = []
    for split in ("val", "test"):
        if facts["splits"][split] == 0:
            notes.append(f"no {split} split")
    if not samples.attributes:
        notes.append("no attributes: a ranking can be made but not scored against true groups")
    notes += untelling(samples)
    if samples.faults:
        notes.append(f"{len(samples.faults)} samples cannot be read and would be left out")
    return notes
