"""Runs as a command leaves them, made by hand: quick, and their content is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import miniatures
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import RANKING, RunFolder
from sebra.samples.open import open_samples


def ranked_run(root: Path, n: int = 10, stages: int = 2, seed: int = 0) -> RunFolder:
    """A ranking of a small folder of pictures with two classes; every fifth sample is suspect.

    Pattern k is broken by the samples whose number is a multiple of k + 2.
    """
    data = root / "photos"
    if not data.is_dir():
        miniatures.folder(data, n=n)
    samples = open_samples(str(data))
    number = np.arange(len(samples))
    rank = np.empty(len(samples), dtype=np.int64)
    for c in (0, 1):
        here = np.flatnonzero(samples.labels == c)
        rank[here] = np.random.default_rng(seed).permutation(len(here))
    table = pd.DataFrame(
        {
            "id": samples.ids,
            "label": np.asarray(samples.classes, dtype=object)[samples.labels],
            "rank": rank,
            "bucket": rank // 4,
            "spuriosity": 1 - rank / max(1, rank.max()),
            **{f"stage_{k}": np.where(number % (k + 2), 0.9, 0.1) for k in range(1, stages + 1)},
            "noise": np.where(number % 5, 0.1, 0.9),
            "suggested": np.asarray(samples.classes, dtype=object)[1 - samples.labels],
            "why": "looks like the other",
        }
    )
    number_of = sum(path.name.startswith("run") for path in root.iterdir())
    folder = RunFolder.create(str(root / f"run{number_of}"), "audit")
    folder.write_config({"command": "audit", "data": str(data), "version": "9", "method": "peel"})
    Ranking(table).save(folder.path / RANKING)
    folder.write_patterns([pattern_of(table, f"stage_{k}") for k in range(1, stages + 1)])
    metrics = {"version": "9", "seconds": {"total": 1.0}, "samples": len(table), "ranking": {}}
    folder.write_metrics(metrics)
    return RunFolder.open(str(folder.path))


def pattern_of(table: pd.DataFrame, stage: str) -> dict[str, object]:
    follows = table[stage] > 0.5
    sides = (("with_it", follows, 95.0), ("against_it", ~follows, 40.0))
    return {
        "chance": 1e-9,
        "followed_by": float(follows.mean()),
        "share": follows.groupby(table["label"]).mean().to_dict(),
        **{
            name: {"samples": int(side.sum()), "accuracy": a, "low": a - 5, "high": a + 4}
            for name, side, a in sides
        },
        "without_it": 67.5,
    }
