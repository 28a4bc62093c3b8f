"""Time to a finished ranking, ours and the reference's, with the quality of both."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sebra.errors import CollapsedError
from sebra.measuring.ranks import quality_of
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.sebra import FULL, SebraConfig
from sebra.samples.table import Samples
from sebra.workflows.prepared import Prepared
from sebra.workflows.rank import RankOptions
from sebra.workflows.rank import rank as run_rank
from sebra_bench.speed.rates import Bench, Line
from sebra_bench.speed.tools import peak_memory_mib, reset_memory, wait

_FEWER = 0.25  # of the draws, at a rate that makes up for it (see `quick`)
_AFTER = ("noise", "controls")  # judged when the ranking is finished; the reference does neither


@dataclass(frozen=True)
class Rankings:
    """How many seeds are ranked, and with which settings. batch: of the reference's default."""

    seeds: int
    preset: str | None
    overrides: tuple[str, ...]
    batch: int


def ranking_lines(
    prepared: Prepared, b: Bench, config: SebraConfig, rankings: Rankings
) -> list[Line]:
    """Finished rankings from the warm cache on both sides, with the quality of both.

    Ours twice: with the settings of the other side, and with a quarter of the draws at a higher
    rate, which ranks nearly as well. An epoch before each does not count: the first of a process
    tunes its kernels for seconds, on either side.
    """
    lines = [_our_ranking(prepared, rankings, "finished ranking", ())]
    if config.draws == FULL:
        name = "finished ranking, a quarter of the draws"
        lines.append(_our_ranking(prepared, rankings, name, quick(config)))
    s = replace(b.settings, batch=min(config.batch or rankings.batch, len(b.task)))
    pictures, seconds, quality = b.pictures(), [], []

    def reference(seed: int, settings: Any) -> tuple[float, Any, Any]:
        torch.manual_seed(seed)
        network = replace(b, task=replace(b.task, seed=seed)).plain_network()
        wait(prepared.device)
        start = time.perf_counter()
        ranker = b.reference.Ranker(network, pictures, b.labels, settings, prepared.device)
        bucket, score = ranker.rank()
        return time.perf_counter() - start, bucket, score

    reference(0, replace(s, epochs=1))
    for seed in range(rankings.seeds):
        spent, bucket, score = reference(seed, s)
        seconds.append(spent)
        quality.append(_somers_d(prepared.samples, bucket, score, b.labels))
    for line in lines:
        line.reference = float(np.mean(seconds))
        line.extra |= {"reference_seconds": seconds, "reference_somers_d": quality}
    return lines


def quick(config: SebraConfig) -> tuple[str, ...]:
    """Fewer draws; the rate grows in proportion with SGD, with the root under Adam."""
    faster = 1 / _FEWER if config.optimizer == "sgd" else _FEWER**-0.5
    return f"draws={_FEWER:g}", f"lr={config.lr * faster:g}"


def _our_ranking(
    prepared: Prepared, rankings: Rankings, name: str, overrides: tuple[str, ...]
) -> Line:
    seconds, phases, rounds, quality = [], [], [], []
    reset_memory(prepared.device)
    chosen = RankOptions(preset=rankings.preset, overrides=(*rankings.overrides, *overrides))
    with suppress(CollapsedError):  # one epoch may be too few to learn anybody
        run_rank(prepared.source, replace(chosen, overrides=(*chosen.overrides, "epochs=1")))
    for seed in range(rankings.seeds):
        wait(prepared.device)
        start = time.perf_counter()
        run = run_rank(replace(prepared.source, seed=seed), chosen)
        took = time.perf_counter() - start
        phases.append(run.metrics["seconds"])
        seconds.append(took - sum(phases[-1].get(after, 0.0) for after in _AFTER))
        rounds.append(run.metrics["ranking"].get("rounds"))
        quality.append(run.metrics["ranking"].get("somers_d"))
    line = Line(name, "s", float(np.mean(seconds)), memory_mib=peak_memory_mib(prepared.device))
    line.extra = {
        "seconds": seconds,
        "phases": phases,
        "rounds": rounds,
        "somers_d": quality,
    }
    return line


def _somers_d(samples: Samples, bucket: Any, score: Any, labels: Any) -> float | None:
    rank = ranks_within_classes(bucket, score, labels)
    quality = quality_of(samples, samples.rows("train"), rank)
    return None if quality is None else float(quality["somers_d"])
