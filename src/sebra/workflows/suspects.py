"""The `noise`, `suggested` and `why` columns of a ranking."""

from __future__ import annotations

import numpy as np

from sebra.engine.session import Session
from sebra.ranking.noise import NoiseEstimate, estimate_noise, too_large
from sebra.ranking.ranking import Ranking
from sebra.runs.meter import Meter
from sebra.workflows.prepared import Prepared


def add_noise(
    ranking: Ranking,
    prepared: Prepared,
    session: Session,
    meter: Meter,
    known: NoiseEstimate | None = None,
) -> None:
    """Estimates who is mislabelled and writes it into the ranking's table.

    `ranking` is in the order of the training split, as `Ranking.from_result` leaves it. known: the
    estimate of that split, where the ranker has made it already.
    """
    task = prepared.task("train")
    if too_large(task):
        session.note(
            f"wrong labels are not estimated (no noise column): {len(task)} samples x "
            f"{task.classes} classes are too many"
        )
        return
    part, _ = prepared.split("train")
    with meter.phase("noise"):
        found = estimate_noise(task) if known is None else known
    names = np.asarray(part.classes, dtype=object)
    ranking.table = ranking.table.assign(
        noise=found.noise,
        suggested=names[found.suggested],
        why=np.asarray(found.reasons(part.labels, part.classes), dtype=object),
    )
    ranking.details["suspects"] = int(found.flagged.sum())
    ranking.logits = found.logits
