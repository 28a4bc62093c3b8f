"""Are planted marks named and placed rightly? With the sides that were found, and the true ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra import __version__
from sebra.engine.session import ProgressSink, Silent
from sebra.loading.descriptors import BORDER, COLOUR, LIGHT, PLACES, SHARPNESS
from sebra.samples.table import ImageArray, Samples, alignment
from sebra.workflows.prepared import Prepared, Source
from sebra.workflows.rank import RankOptions, rank
from sebra_bench.carryover.figures import finding
from sebra_bench.carryover.planting import CONSTANT, TOKEN, Planted, load
from sebra_bench.carryover.sets import BenchSet, encoder_folder, weights_file
from sebra_bench.rows import ROWS, Row, Rows, read_rows
from sebra_tools.naming import families_of, pattern_words
from sebra_tools.places import place_of
from sebra_tools.words import CENTRE, MARK, Word, sides_of

Array = npt.NDArray[Any]
EDGES = {BORDER, *PLACES} - {CENTRE}
# The kinds of words that are right for a nuisance of pictures.
RIGHT: dict[str, set[str]] = {
    "watermark": {*EDGES, MARK},
    "border": {*EDGES, MARK},
    "position": EDGES,
    "cast": {COLOUR},
    "brightness": {LIGHT},
    "blur": {SHARPNESS},
    "compression": {SHARPNESS},
    "resolution": {SHARPNESS},
}
LOOKED_AT = 2  # words: the first or the second must be right


def naming(
    sets: Sequence[BenchSet], folder: Path, progress: ProgressSink | None = None
) -> list[Row]:
    """A row for each planted set; those in the folder's `rows.jsonl` are not made again."""
    shown: ProgressSink = progress or Silent()
    file = folder / ROWS
    rows = read_rows(file) if file.is_file() else []
    done = {row["data"] for row in rows}
    kept = Rows(file)
    for chosen in sets:
        if chosen.name not in done:
            shown.message(f"{chosen.name}: is its mark named?")
            rows.append(kept.add(row_of(chosen.name, load(Path(chosen.make()).parent))))
    return [row for row in rows if row["data"] in {s.name for s in sets}]


def row_of(name: str, planted: Planted) -> Row:
    """Ranks a planted copy and asks the words and the maps of both kinds of sides."""
    nuisance = planted.facts["plan"]["nuisance"]
    backbone = encoder_folder() if nuisance == TOKEN else None
    weights = weights_file() if nuisance in RIGHT else None
    run = rank(Source(planted.data, backbone=backbone, weights=weights), RankOptions("peel"))
    samples = run.prepared.samples
    part = samples.take(samples.rows("train"))
    found = finding(run.ranking, samples, planted.telling)
    row: Row = {"data": name, "version": __version__, "nuisance": nuisance, "finding": found}
    row["verdict"] = run.metrics["verdict"]["state"]
    row["true"] = _said(part, run.prepared, planted, _follow(part))
    if found.get("found"):
        sides = run.ranking.table[found["stage"]].to_numpy()
        row["found"] = _said(part, run.prepared, planted, sides)
    return row


def _follow(part: Samples) -> Array:
    names, aligned = alignment(part)
    return np.asarray(aligned[:, names.index("mark")], dtype=bool)


def _said(part: Samples, prepared: Prepared, planted: Planted, follows: Array) -> dict[str, Any]:
    # The column that says who carries the mark is no word for it.
    families = [f for f in families_of(part) if not f.kind.startswith("metadata")]
    words = pattern_words(families, prepared, part, follows)
    right = any(_right(word, planted) for word in words[:LOOKED_AT])
    out: dict[str, Any] = {"words": [word.to_dict() for word in words], "right": right}
    content = prepared._read("train")[1]
    if isinstance(content, ImageArray) and planted.boxes:
        out["peaks"] = _peaks(part, content, planted, follows)
    return out


def _right(word: Word, planted: Planted) -> bool:
    nuisance = planted.facts["plan"]["nuisance"]
    said = " ".join(word.phrases.values())
    if nuisance == CONSTANT:
        return f"column {planted.column} " in said
    if nuisance == TOKEN:
        groups = planted.facts["training_groups"].values()
        return any(f"“{mark}" in said or f"{mark}”" in said for group in groups for mark in group)
    return word.kind in RIGHT[nuisance]


def _peaks(
    part: Samples, content: ImageArray, planted: Planted, follows: Array
) -> dict[str, float | None]:
    """Per class the share of its marked samples whose mark is under the map's peak.

    None where no map is shown. Of those that follow and those that break it the larger share: one
    of the two carries the mark.
    """
    out: dict[str, float | None] = {}
    for c, label in enumerate(part.classes):
        sides = sides_of(follows, part.labels, c)
        found = place_of(content, *sides)
        if found is None:
            out[label] = None
            continue
        heat = found[0]
        y, x = (float(p + 0.5) / heat.shape[0] for p in np.unravel_index(heat.argmax(), heat.shape))
        out[label] = max(_under(part, planted, rows, x, y) for rows in sides)
    return out


def _under(part: Samples, planted: Planted, rows: Array, x: float, y: float) -> float:
    boxes = [planted.boxes[name] for name in part.ids[rows] if name in planted.boxes]
    hit = [any(a <= x <= c and b <= y <= d for a, b, c, d in places) for places in boxes]
    return round(float(np.mean(hit)), 3) if hit else 0.0


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """How many are named rightly, and how many maps have their peak on the mark."""
    out: dict[str, Any] = {"sets": len(rows)}
    for sides in ("true", "found"):
        known = [row[sides] for row in rows if sides in row]
        peaks = [p for one in known for p in one.get("peaks", {}).values()]
        shown = [p for p in peaks if p is not None]
        out[sides] = {
            "named": sum(one["right"] for one in known),
            "of": len(known),
            "maps": len(shown),
            "no map": len(peaks) - len(shown),
            "peak on the mark": sum(p >= 0.5 for p in shown),
        }
    return out
