"""`--track`: what a finished run folder holds, sent to a tracker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sebra.engine.tracking import open_tracker, send
from sebra.errors import SebraError
from sebra.runs.folder import HISTORY, METRICS, RANKING, RunFolder

GALLERY = 12  # pictures from each end of a class
MOST_CLASSES = 12
SIDE = 96


def track_run(name: str, folder: RunFolder) -> Path:
    """Sends curves, final figures and galleries; returns where they lie on this machine."""
    config = folder.read_config()
    where = folder.path / "tracking"
    where.mkdir(exist_ok=True)
    run_name = folder.path.name or "sebra"
    tracker = open_tracker(name, run_name, where)
    metrics = folder.read_metrics() if folder.has(METRICS) else {}
    send(
        tracker, flat(config), curves_of(folder), numbers_of(metrics), galleries_of(folder, config)
    )
    return where


def curves_of(folder: RunFolder) -> list[tuple[int, dict[str, float]]]:
    """The history as points: figures of each class under `figure/class`, others as they are."""
    import pandas as pd

    if not folder.has(HISTORY):
        return []
    history = pd.read_parquet(folder.path / HISTORY)
    out: list[tuple[int, dict[str, float]]] = []
    if "epoch" not in history:
        return out
    for epoch, rows in history.groupby("epoch"):
        values: dict[str, float] = {}
        for column in rows.columns:
            if column == "epoch" or rows[column].dtype.kind not in "fiu":
                continue
            if column == "learned" and "label" in rows:
                pairs = zip(rows["label"], rows[column], strict=True)
                values |= {f"learned/{label}": float(v) for label, v in pairs}
            elif math.isfinite(mean := float(rows[column].mean())):
                values[str(column)] = mean
        out.append((int(str(epoch)), values))
    return out


def numbers_of(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every finite number of `metrics.json` under its path, `ranking/somers_d` for example."""
    out: dict[str, float] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            out |= numbers_of(value, f"{name}/")
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        elif math.isfinite(value):
            out[name] = float(value)
    return out


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The configuration as one level."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def galleries_of(folder: RunFolder, config: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The most and the least spurious pictures of each class; empty without pictures."""
    from sebra.ranking.ranking import Ranking
    from sebra.samples.open import open_samples
    from sebra.showing.picking import pick
    from sebra.showing.ranked import ranked_of
    from sebra.showing.thumbnails import pictures_of

    data = config.get("data")
    if not folder.has(RANKING) or not isinstance(data, str):
        return {}
    try:
        samples = open_samples(data)
    except SebraError:  # the data has moved; the figures are still worth sending
        return {}
    if samples.kind != "image":
        return {}
    ranked = ranked_of(Ranking.load(folder.path).table, samples)
    picked, read = pick(ranked), pictures_of(samples, ranked.rows, SIDE)
    out: dict[str, list[Any]] = {}
    for c in picked.classes[:MOST_CLASSES]:
        for end, rows in (("most", picked.most[c]), ("least", picked.least[c])):
            shown = [image for i in rows[:GALLERY].tolist() if (image := read(i)) is not None]
            out[f"{ranked.classes[c]}/{end} spurious"] = [i.resize((SIDE, SIDE)) for i in shown]
    return out
