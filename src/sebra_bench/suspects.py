"""Wrong labels planted among right ones: how many does `noise` flag, and how many does cleanlab?

Both judge by the same held-out probabilities, those of `noise` with its temperature (cleanlab is
no better without it). cleanlab's `find_label_issues` flags with its usual filter and with `both`,
which asks for two reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from sebra import __version__
from sebra.engine.session import ProgressSink, Session, Silent
from sebra.errors import UsageError
from sebra.ranking.noise import _fitted, estimate_noise
from sebra.runs.meter import Meter
from sebra.samples.open import open_samples
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Prepared, Source
from sebra_bench.carryover.sets import BenchSet, encoder_folder, weights_file
from sebra_bench.label_noise import inject_noise
from sebra_bench.rows import ROWS, Row, Rows, read_rows

Array = npt.NDArray[Any]
FILTERS = {"cleanlab": "prune_by_noise_rate", "cleanlab, both": "both"}


def suspects(
    sets: Sequence[BenchSet],
    share: float,
    seeds: Sequence[int],
    folder: Path,
    progress: ProgressSink | None = None,
) -> list[Row]:
    """A row for each set and seed; those in the folder's `rows.jsonl` are not made again."""
    if find_spec("cleanlab") is None:
        raise UsageError("suspects: needs cleanlab (pip install cleanlab)")
    shown: ProgressSink = progress or Silent()
    file = folder / ROWS
    rows = read_rows(file) if file.is_file() else []
    done, kept = {(r["data"], r["seed"], r["share"]) for r in rows}, Rows(file)
    for chosen in sets:
        missing = [seed for seed in seeds if (chosen.name, seed, share) not in done]
        if missing:
            shown.message(f"{chosen.name}: who is flagged?")
            prepared = _prepared(chosen)
            rows += [kept.add(_row(chosen.name, prepared, share, seed)) for seed in missing]
    names = {s.name for s in sets}
    return [r for r in rows if r["data"] in names and r["seed"] in seeds and r["share"] == share]


def _prepared(chosen: BenchSet) -> Prepared:
    data = chosen.make()
    samples = open_samples(data, chosen.attributes)
    pictures = samples.kind == "image" and chosen.pretrained
    source = Source(
        data,
        mode="auto" if samples.kind == "features" else "features",
        backbone=encoder_folder() if samples.kind == "text" else None,
        weights=weights_file() if pictures else None,
    )
    meter = Meter()
    prepared = prepare(source, Session(), meter, samples)
    prepared.task("train")
    meter.result()
    return prepared


def _row(name: str, prepared: Prepared, share: float, seed: int) -> Row:
    samples, changed = inject_noise(prepared.samples, share, seed=seed)
    train = samples.rows("train")
    part, inputs = prepared.split("train")
    splits = {**prepared._splits, "train": (replace(part, labels=samples.labels[train]), inputs)}
    task = replace(prepared, samples=samples, _splits=splits).task("train")
    estimate = estimate_noise(replace(task, seed=seed))
    wrong, labels = changed[train], samples.labels[train]
    row: Row = {"data": name, "seed": seed, "share": share, "version": __version__}
    found = {"noise": estimate.flagged}
    if estimate.logits is not None:
        found |= flagged_by_cleanlab(estimate.logits.astype(np.float64), labels)
    return {**row, "samples": len(train), **{k: figures(v, wrong) for k, v in found.items()}}


def flagged_by_cleanlab(logits: Array, labels: Array) -> dict[str, Array]:
    """Who is flagged, by the name of the filter."""
    from cleanlab.filter import find_label_issues

    says = softmax(_fitted(logits, labels)[0] * logits, axis=1)
    return {
        name: np.asarray(find_label_issues(labels, says, filter_by=filter_by, n_jobs=1), dtype=bool)
        for name, filter_by in FILTERS.items()
    }


def figures(flagged: Array, wrong: Array) -> dict[str, Any]:
    """The share of the wrong labels that is flagged, and the share of the flagged that is wrong."""
    hits = int((flagged & wrong).sum())
    return {
        "flagged": int(flagged.sum()),
        "recall": hits / max(1, int(wrong.sum())),
        "precision": hits / max(1, int(flagged.sum())),
    }


def summary(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """Per set and finder the means over the seeds; `f1` is the harmonic mean of both shares."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        for finder in ("noise", *FILTERS):
            known = [row[finder] for row in own if finder in row]
            if known:
                r, p = (float(np.mean([k[key] for k in known])) for key in ("recall", "precision"))
                f1 = 2 * r * p / max(r + p, 1e-12)
                out.setdefault(data, {})[finder] = {"recall": r, "precision": p, "f1": f1}
    return out
