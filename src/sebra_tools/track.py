"""`--track`: a finished run folder sent to TensorBoard or Weights & Biases, by Accelerate."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sebra.errors import SebraError, UsageError
from sebra.places import offline
from sebra.runs.folder import HISTORY, METRICS, RANKING, RunFolder

GALLERY = 12  # pictures from each end of a class
MOST_CLASSES = 12
SIDE = 96


class Tracker:
    """Sends finished runs to a tracker; one that is not installed is refused at once."""

    def __init__(self, name: str) -> None:
        if find_spec(name) is None:
            raise UsageError(f"--track {name}: needs the package {name}; pip install {name}")
        self.name = name

    def send(self, folder: RunFolder) -> Path:
        """Settings, curves, final figures and galleries; returns where they lie here."""
        return _send(self.name, folder)


def _send(name: str, folder: RunFolder) -> Path:
    config = folder.read_config()
    where = folder.path / "tracking"
    where.mkdir(exist_ok=True)
    tracker = _open(name, folder.path.name or "sebra", where)
    settings = "\n".join(f"    {k} = {v}" for k, v in flat(config, ".").items())
    tracker.log({"config": settings}, step=0)
    last = 0
    for last, values in _curves(folder):
        tracker.log(values, step=last)
    metrics = folder.read_metrics() if folder.has(METRICS) else {}
    tracker.log({f"final/{k}": v for k, v in numbers_of(metrics).items()}, step=last)
    for title, images in _galleries(folder, config).items():
        if name == "tensorboard":
            import numpy as np

            stack = np.stack([np.asarray(image.convert("RGB")) for image in images])
            tracker.log_images({title: stack}, step=last, dataformats="NHWC")
        else:
            tracker.log_images({title: images}, step=last)
    tracker.finish()
    return where


def _open(name: str, run_name: str, folder: Path) -> Any:
    """A started tracker; everything it writes stays under `folder` unless it goes to a server.

    Weights & Biases keeps the run on disk (`wandb sync` sends it later) where `SEBRA_OFFLINE` is
    set or no key is.
    """
    from accelerate import tracking

    if name == "tensorboard":
        made: Any = tracking.TensorBoardTracker(run_name, logging_dir=str(folder))
    else:
        online = os.environ.get("WANDB_API_KEY") and not offline()
        mode = os.environ.get("WANDB_MODE") or ("online" if online else "offline")
        made = tracking.WandBTracker(run_name, dir=str(folder), mode=mode)
    if hasattr(made, "start"):  # earlier releases of Accelerate start by themselves
        made.start()
    return made


def _curves(folder: RunFolder) -> list[tuple[int, dict[str, float]]]:
    """Per epoch the means of the history's figures; what was learned also by class."""
    import pandas as pd

    history = pd.read_parquet(folder.path / HISTORY) if folder.has(HISTORY) else pd.DataFrame()
    if "epoch" not in history:
        return []
    points = history.groupby("epoch").mean(numeric_only=True)
    if "learned" in history and "label" in history:
        wide = history.pivot_table(index="epoch", columns="label", values="learned")
        points = points.drop(columns="learned").join(wide.add_prefix("learned/"))
    rows = points.to_dict(orient="index").items()
    return [(int(str(epoch)), numbers_of(row)) for epoch, row in rows]


def flat(values: Mapping[Any, Any], separator: str) -> dict[str, Any]:
    """Nested tables as one, `ranking/somers_d` for example."""
    import pandas as pd

    row = pd.json_normalize(dict(values), sep=separator).to_dict(orient="records")[0]
    return {str(k): v for k, v in row.items()}


def numbers_of(metrics: Mapping[Any, Any]) -> dict[str, float]:
    """Every finite number under its path."""
    found = flat(metrics, "/").items()
    numbers = {
        k: float(v) for k, v in found if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
    return {k: v for k, v in numbers.items() if math.isfinite(v)}


def _galleries(folder: RunFolder, config: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The most and the least spurious pictures of each class; empty without pictures."""
    from sebra.ranking.ranking import Ranking
    from sebra.samples.open import open_samples
    from sebra.showing.picking import pick
    from sebra.showing.ranked import ranked_of
    from sebra.showing.thumbnails import pictures_of

    if not folder.has(RANKING):
        return {}
    try:
        samples = open_samples(str(config.get("data", "")))
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
            if shown:
                title = f"{ranked.classes[c]}/{end} spurious"
                out[title] = [image.resize((SIDE, SIDE)) for image in shown]
    return out
