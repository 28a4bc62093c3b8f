"""Does the positive control say rightly whether a planted mark is found?

On every planted set the ranker runs as in an audit, and then its positive control, which speaks of
marks of its own. Where every class has its variant in the set (`all`), the trials count in which
each class has a mark; else those with a mark of one class. The control predicts "found" where more
than half of them were found. What then happens is known, since the set's own mark was planted:
it is found where a stage tells those that follow it from those that break it (`finding`). The two
agree where both say found, or neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sebra import __version__
from sebra.engine.session import ProgressSink, Session, Silent
from sebra.ranking.controls import FOUND, run_controls
from sebra.ranking.peel import PeelConfig, PeelRanker
from sebra.ranking.ranking import Blind
from sebra.runs.meter import Meter
from sebra.samples.open import open_samples
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Source
from sebra.workflows.rank import ranking_of
from sebra_bench.carryover.figures import finding
from sebra_bench.carryover.planting import load
from sebra_bench.carryover.sets import BenchSet, encoder_folder, weights_file
from sebra_bench.rows import ROWS, Row, Rows, read_rows

TRIALS = 10


def agreement(
    sets: Sequence[BenchSet], folder: Path, progress: ProgressSink | None = None
) -> list[Row]:
    """A row for each planted set; those in the folder's `rows.jsonl` are not made again."""
    shown: ProgressSink = progress or Silent()
    file = folder / ROWS
    rows = read_rows(file) if file.is_file() else []
    done, kept = {row["data"] for row in rows}, Rows(file)
    for chosen in sets:
        if chosen.name not in done:
            shown.message(f"{chosen.name}: what does the control say?")
            rows.append(kept.add(row_of(chosen)))
    return [row for row in rows if row["data"] in {s.name for s in sets}]


def row_of(chosen: BenchSet) -> Row:
    """What happens on a planted set, and what the control on it predicts."""
    data = chosen.make()
    samples = open_samples(data)
    backbone = encoder_folder() if samples.kind == "text" else None
    weights = weights_file() if samples.kind == "image" else None
    meter = Meter()
    mode = "auto" if samples.kind == "features" else "features"
    source = Source(data, mode=mode, backbone=backbone, weights=weights)
    prepared = prepare(source, Session(), meter, samples)
    ranker = PeelRanker(PeelConfig())
    ranking = ranking_of(prepared, ranker, Session(), meter, Blind())
    meter.result()
    found = finding(ranking, samples, load(Path(data).parent).telling)
    again = partial(PeelRanker, ranker.config)
    controls = run_controls(prepared.rank_task(ranker), again, float("inf"), most=TRIALS)
    every = load(Path(data).parent).facts["plan"]["scheme"]["name"] == "all"
    one, each = ((), ()) if controls is None else (controls.one, controls.each)
    areas = each if every else one
    hits = sum(area >= FOUND for area in areas)
    row: Row = {"data": chosen.name, "role": chosen.role, "version": __version__, "finding": found}
    row |= {"one": [round(a, 3) for a in one], "each": [round(a, 3) for a in each]}
    row |= {"control_found": hits, "trials": len(areas), "predicted": 2 * hits > len(areas)}
    return {**row, "agrees": row["predicted"] == bool(found.get("found"))}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """How often the control and what happens agree, by role and in all."""
    roles = {role: [r for r in rows if r["role"] == role] for role in ("settings", "report")}
    counts = {
        role: {"sets": len(own), "agree": sum(r["agrees"] for r in own)}
        for role, own in roles.items()
    }
    disagree = [r["data"] for r in rows if not r["agrees"]]
    return {**counts, "sets": len(rows), "agree": len(rows) - len(disagree), "disagree": disagree}
