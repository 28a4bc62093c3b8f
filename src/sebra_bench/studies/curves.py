"""Curves over training: what a look at the network shows after every round, kept as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra.engine.session import Session
from sebra.ranking.registry import ranker_class
from sebra.workflows.prepared import Prepared
from sebra_bench.plan import Spec
from sebra_bench.rows import Row
from sebra_bench.tables import ABSENT
from sebra_bench.workbench import Workbench

Look = Callable[[torch.nn.Module], Mapping[str, float]]
Array = npt.NDArray[np.float64]
_EPOCHS_SPENT = 2  # place in the state of the pace


class Watched(Session):
    """Knows how far the ranker in it has trained: a round may be a part of an epoch."""

    _state: Mapping[str, Any] | None = None

    def phase(self, name: str, total: int, state: Mapping[str, Any]) -> Iterator[int]:
        self._state = state
        return super().phase(name, total, state)

    @property
    def epochs(self) -> float | None:
        """Epochs of training so far; None of a ranker whose rounds are epochs."""
        pace = None if self._state is None else self._state.get("pace")
        return None if pace is None else float(pace[_EPOCHS_SPENT])


class _Curve:
    """The monitor that looks at the network after every round."""

    def __init__(self, session: Watched, look: Look) -> None:
        self.points: list[dict[str, float]] = []
        self._session, self._look = session, look

    def round(
        self, number: int, network: torch.nn.Module | None, loss: float, learned: torch.Tensor
    ) -> None:
        assert network is not None
        epochs = self._session.epochs
        point = {"epoch": number + 1.0 if epochs is None else epochs}
        self.points.append(
            {**point, "learned": float(learned.float().mean()), **self._look(network)}
        )

    def state_dict(self) -> dict[str, Any]:
        return {"points": self.points}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.points = list(state["points"])


def curve(
    bench: Workbench, study: str, spec: Spec, seed: int, look_on: Callable[[Prepared], Look]
) -> Row:
    """The row of one ranker's training, with `curve`: a point per round; finished ones are read."""

    def points(prepared: Prepared, ranker: Any, session: Watched) -> list[dict[str, float]]:
        monitor = _Curve(session, look_on(prepared))
        ranker.rank(prepared.rank_task(ranker), session, monitor)
        return monitor.points

    return recorded(bench, study, spec, seed, points)


def recorded(
    bench: Workbench,
    study: str,
    spec: Spec,
    seed: int,
    points: Callable[[Prepared, Any, Watched], list[dict[str, float]]],
) -> Row:
    """The row whose `curve` are the points of one ranker's training; finished ones are read."""
    key = {"kind": "curve", "study": study, "method": spec.label, "seed": seed}
    identity = {**bench.ranking_identity(spec, seed), "study": study}
    found = bench.rows.find(key, identity)
    if found is not None:
        return found
    prepared = bench.to_rank(seed, spec.name)
    ranker = ranker_class(spec.name)(bench.ranker_config(spec))
    session = Watched(progress=bench.progress)
    label = f"curve of {spec.label} seed {seed}"
    with bench.running(label, session) as (_, meter), meter.phase("rank"):
        seen = points(prepared, ranker, session)
    row = {
        **key,
        "curve": seen,
        **meter.result(),
        **bench.facts(prepared),
        "notes": list(session.notes),
        "identity": identity,
    }
    return bench.rows.add(row)


def has_curve(rows: Sequence[Row], key: str) -> bool:
    """Whether every seed has a value of it: an attribute that nobody breaks has none."""
    return all(any(key in p for p in row["curve"]) for row in rows)


def over_seeds(rows: Sequence[Row], key: str, step: float = 0.25) -> tuple[Array, Array, Array]:
    """Epochs, mean and deviation over seeds of a curve, between rounds by a straight line.

    From the latest first round to the earliest last one, so that every seed is in every mean.
    """
    points = [[(p["epoch"], p[key]) for p in row["curve"] if key in p] for row in rows]
    first = max(p[0][0] for p in points)
    last = min(p[-1][0] for p in points)
    grid = np.unique(np.r_[first, np.arange(np.ceil(first / step), last / step) * step, last])
    values = np.stack([np.interp(grid, [e for e, _ in p], [x for _, x in p]) for p in points])
    deviation = values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(grid))
    return grid, values.mean(0), deviation


def shown_epochs(rows: Sequence[Row]) -> list[int]:
    """The epochs that a table shows: those that any of the curves reaches."""
    last = max(row["curve"][-1]["epoch"] for row in rows)
    return [e for e in (1, 2, 3, 5, 10, 20, 30, 50) if e <= last + 1e-9]


def at_epochs(rows: Sequence[Row], key: str, epochs: Sequence[int], digits: int) -> dict[str, str]:
    """Cells with the mean curve at these epochs; a dash before its start and beyond its end."""
    if not has_curve(rows, key):
        return {f"epoch {e}": ABSENT for e in epochs}
    grid, mean, _ = over_seeds(rows, key)
    return {
        f"epoch {e}": f"{np.interp(e, grid, mean):.{digits}f}"
        if grid[0] <= e <= grid[-1] + 1e-9
        else ABSENT
        for e in epochs
    }
