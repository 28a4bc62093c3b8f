"""`sebra compare`: two models, or two rankings, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sebra.engine.session import ProgressSink
from sebra.errors import UsageError
from sebra.measuring.groups import MIN_GROUP, score
from sebra.ranking.noise import SUSPECT
from sebra.ranking.patterns import matched
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import CONFIG, METRICS, RANKING, RunFolder
from sebra.samples.open import open_samples
from sebra.samples.table import Samples
from sebra_tools.answers import SPLITS, answers_of, is_model
from sebra_tools.leaning import has_patterns, sided, sides

SHOWN = 24  # samples that changed, on each side
_FIGURES = ("id_accuracy", "average", "balanced_average", "worst_group", "average_gap")
_RANKING_FIGURES = ("somers_d", "tau_b", "trust", "buckets")


def compare(
    first: str,
    second: str,
    data: str | None = None,
    ranking: str | None = None,
    device: str = "auto",
    min_group: int = MIN_GROUP,
    progress: ProgressSink | None = None,
) -> tuple[dict[str, Any], Samples]:
    """What differs between two models or two rankings, and the data set it was seen on.

    ranking: the run whose patterns the models are measured by; else that of either model.
    """
    models = [is_model(what) for what in (first, second)]
    samples = open_samples(data or _data_of(first, second))
    out = {"data": samples.source, "names": [first, second]}
    if all(models):
        found = _models(first, second, samples, ranking, device, min_group, progress)
        return {"kind": "models", **out, **found}, samples
    if any(models):
        raise UsageError(f"{first}, {second}: a model and a ranking cannot be compared")
    found = _rankings(first, second)
    gone = {str(sample["id"]) for sample in found["moved"]} - {str(i) for i in samples.ids.tolist()}
    if gone:
        raise UsageError(f"DATA: {samples.source} has no sample {min(gone)}; give what was ranked")
    return {"kind": "rankings", **out, **found}, samples


def _data_of(*runs: str) -> str:
    for run in runs:
        folder = RunFolder(Path(run))
        if folder.has(CONFIG) and isinstance(named := folder.read_config().get("data"), str):
            return named
    raise UsageError(
        "DATA: neither of them says what it was made from; give DATA as the third argument"
    )


def _models(
    first: str,
    second: str,
    samples: Samples,
    ranking: str | None,
    device: str,
    min_group: int,
    progress: ProgressSink | None,
) -> dict[str, Any]:
    both = [answers_of(what, samples, device) for what in (first, second)]
    known = {
        s: np.intersect1d(both[0].known(samples, s), both[1].known(samples, s)) for s in SPLITS
    }
    split = next((s for s in SPLITS if len(known[s])), None)
    if split is None:
        raise UsageError(f"{first}, {second}: no split of {samples.source} is answered by both")
    rows, labels = known[split], samples.labels
    predicted = [a.predicted[rows] for a in both]
    scores = [score(samples, rows, p, min_group).to_dict() for p in predicted]
    out: dict[str, Any] = {
        "split": split,
        "samples": len(rows),
        "overall": {
            k: [s.get(k) for s in scores] for k in _FIGURES if scores[0].get(k) is not None
        },
        "classes": {c: [s["per_class"].get(c) for s in scores] for c in scores[0]["per_class"]},
        "groups": [
            {
                "name": g["name"],
                "samples": g["n_test"],
                "small": g["small"],
                "accuracy": [g["accuracy"], h["accuracy"]],
            }
            for g, h in zip(scores[0]["groups"], scores[1]["groups"], strict=True)
        ],
        "changed": _changed(samples, rows, *predicted),
        "patterns": [],
    }
    runs = [RunFolder(Path(run)) for run in (ranking, first, second) if run is not None]
    source = next((run for run in runs if has_patterns(run, samples.source, split)), None)
    if source is not None:
        stages, some, follows = sides(source, samples, split, rows, progress)
        for k, stage in enumerate(stages):
            each = [
                sided(follows[:, k], a.predicted[some] == labels[some], labels[some]) for a in both
            ]
            out["patterns"].append({"stage": stage, "models": each})
    return out


def _changed(samples: Samples, rows: Any, first: Any, second: Any) -> dict[str, Any]:
    """`mended`: wrong before and right now; `broken`: the reverse; the first of each by class."""
    labels = samples.labels[rows]
    names = samples.classes
    out: dict[str, Any] = {}
    for key, before, after in (("mended", first, second), ("broken", second, first)):
        at = np.flatnonzero((before != labels) & (after == labels))
        out[key] = {
            "samples": len(at),
            "shown": [
                {
                    "id": str(samples.ids[rows[i]]),
                    "label": names[labels[i]],
                    "first": names[first[i]],
                    "second": names[second[i]],
                }
                for i in _spread(at)
            ],
        }
    return out


def _spread(at: Any) -> Any:
    """Evenly through them, so that no class or group has all places."""
    return at[np.linspace(0, len(at) - 1, min(SHOWN, len(at))).astype(int)] if len(at) else at


def _rankings(first: str, second: str) -> dict[str, Any]:
    folders = [RunFolder.open(run) for run in (first, second)]
    missing = next((f for f in folders if not f.has(RANKING)), None)
    if missing is not None:
        raise UsageError(f"{missing.path}: holds neither a model nor a ranking")
    a, b = (Ranking.load(f.path) for f in folders)
    both = a.table.merge(b.table, on="id", suffixes=("_first", "_second"))
    if both.empty:
        raise UsageError(f"{first}, {second}: have no sample in common")
    metrics = [f.read_metrics().get("ranking", {}) if f.has(METRICS) else {} for f in folders]
    same = matched(b, a)
    moved = (both["spuriosity_second"] - both["spuriosity_first"]).to_numpy()
    order = np.argsort(-np.abs(moved), kind="stable")[:SHOWN]
    suspects = [
        set(r.table["id"][r.table["noise"] >= SUSPECT]) if "noise" in r.table else set()
        for r in (a, b)
    ]
    agree = {
        str(label): float(part["rank_first"].corr(part["rank_second"], method="spearman"))
        for label, part in both.groupby("label_first")
        if len(part) > 1
    }
    return {
        "samples": len(both),
        "overall": {
            k: [m.get(k) for m in metrics] for k in _RANKING_FIGURES if any(k in m for m in metrics)
        },
        "agreement": agree,
        "patterns": [
            {
                "stage": name,
                "first": same.get(name),
                "followed_by": float((b.table[name] > 0.5).mean()),
            }
            for name in b.stages
        ],
        "gone": [name for name in a.stages if name not in same.values()],
        "suspects": {
            "first": len(suspects[0] - suspects[1]),
            "both": len(suspects[0] & suspects[1]),
            "second": len(suspects[1] - suspects[0]),
        },
        "moved": [
            {
                "id": str(both["id"][i]),
                "label": str(both["label_first"][i]),
                "change": float(moved[i]),
            }
            for i in order
        ],
    }
