"""The page of two models or two rankings side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sebra.samples.table import Samples
from sebra.showing.page import render
from sebra.showing.thumbnails import addresses, pictures_of
from sebra.showing.words import shortened, visible
from sebra.whole import write_text

SIDE = 96
NAMES = {
    "id_accuracy": "I.D. accuracy",
    "average": "accuracy",
    "balanced_average": "mean over groups",
    "worst_group": "worst group",
    "average_gap": "average gap",
    "somers_d": "Somers’ D",
    "tau_b": "τ-b",
    "trust": "trust",
    "buckets": "buckets",
}
Row = tuple[str, float | None, float | None, float | None]


def what(found: Mapping[str, Any]) -> str:
    """What was compared, and on what."""
    if found["kind"] == "models":
        return f"on {found['samples']} samples of the {found['split']} split, in percent"
    return f"two rankings of {found['samples']} common samples"


def rows_of(found: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    """Tables by their titles: name, first, second and the change of each row."""
    overall = [_row(NAMES[k], v) for k, v in found["overall"].items()]
    if found["kind"] == "rankings":
        return [("Overall", overall), ("Patterns", _matched(found)), ("Suspects", _suspects(found))]
    patterns = []
    for number, pattern in enumerate(found["patterns"], 1):
        for side, words in (("with_it", "follow"), ("against_it", "break")):
            sides = [model[side] for model in pattern["models"]]
            name = f"{words} pattern {number} ({sides[0]['samples']})"
            patterns.append(_row(name, [s.get("accuracy") for s in sides]))
    parts = [
        ("Overall", overall),
        ("By pattern", patterns),
        ("By class", [_row(c, v) for c, v in found["classes"].items()]),
        (
            "By group",
            [_row(f"{g['name']} ({g['samples']})", g["accuracy"]) for g in found["groups"]],
        ),
    ]
    return [(title, rows) for title, rows in parts if rows]


def _row(name: str, values: Any) -> Row:
    first, second = values
    return name, first, second, None if first is None or second is None else second - first


def _matched(found: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for pattern in found["patterns"]:
        was = pattern["first"]
        said = f"{pattern['stage']}: {'new' if was is None else f'was {was}'}"
        rows.append((said, None, 100 * pattern["followed_by"], None))
    return [*rows, *((f"{name}: gone", None, None, None) for name in found["gone"])]


def _suspects(found: Mapping[str, Any]) -> list[Row]:
    n = found["suspects"]
    return [_row("suspects", [n["first"] + n["both"], n["second"] + n["both"]])]


def write_comparison(found: Mapping[str, Any], samples: Samples, path: Path) -> Path:
    """Writes one file that opens without a network."""
    context = {
        "title": "Sebra: before and after",
        "found": found,
        "what": what(found),
        "names": [shortened(visible(name), 60) for name in found["names"]],
        "tables": rows_of(found),
        "galleries": _galleries(found, samples),
    }
    return write_text(path, render(context, "compare.html.j2", ()))


def _galleries(found: Mapping[str, Any], samples: Samples) -> list[dict[str, Any]]:
    if found["kind"] == "models":
        words = (("mended", "Wrong before, right now"), ("broken", "Right before, wrong now"))
        parts = [(title, found["changed"][key]["samples"], found["changed"][key]["shown"])
                 for key, title in words]  # fmt: skip
    else:
        parts = [("Moved most", len(found["moved"]), found["moved"])]
    place = {str(name): row for row, name in enumerate(samples.ids.tolist())}
    read = pictures_of(samples, np.arange(len(samples)), SIDE)
    out = []
    for title, many, shown in parts:
        pictures = list(addresses(read, [place[s["id"]] for s in shown], SIDE))
        cards = [{**s, "picture": p}
                 for s, p in zip(shown, pictures, strict=True)]  # fmt: skip
        out.append({"title": title, "n": many, "cards": cards})
    return out
