"""From rows to what the benchmark says: harm on ordinary sets, what is recovered on the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sebra_bench.carryover.references import TRUE_GROUPS
from sebra_bench.carryover.run import PLAIN
from sebra_bench.carryover.sets import BIASED, ORDINARY, PLANTED, REPORT, SETTINGS
from sebra_bench.rows import Row

BUDGET = 3.0 + 1.0  # points of I.D. accuracy that may be lost, and a point of chance
LEAST_TO_RECOVER = 4.0  # points: where true groups gain less, their share would be noise


@dataclass
class Line:
    """One method on one set, the mean over its seeds. Accuracies in percent; None: not measured."""

    data: str
    kind: str
    role: str
    method: str
    seeds: int = 0
    accuracy: float | None = None  # on the test samples as they are
    balanced: float | None = None  # mean over class × attribute groups
    id_accuracy: float | None = None
    ece: float | None = None
    seconds: float | None = None
    stages: float | None = None  # how many patterns are claimed
    found: float | None = None  # share of runs
    area: float | None = None
    harm: float | None = None  # plain accuracy minus this (ordinary sets)
    gain: float | None = None  # balanced average minus plain training's
    recovered: float | None = None  # share of what the true groups gain
    possible: float | None = None  # what the true groups gain
    times_plain: float | None = None
    within_budget: float | None = None  # share of runs
    errors: list[str] = field(default_factory=list)


def lines_of(rows: Sequence[Row]) -> list[Line]:
    """One line per set and method, compared with plain training and with the true groups."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["method"]), []).append(row)
    lines = {key: _line(found) for key, found in groups.items()}
    for (data, _), line in lines.items():
        _compare(line, lines.get((data, PLAIN)), lines.get((data, TRUE_GROUPS)))
        line.within_budget = _budget(groups[data, line.method], groups.get((data, PLAIN), []))
    return list(lines.values())


def _line(rows: Sequence[Row]) -> Line:
    done = [row for row in rows if "error" not in row]
    evaluations = [row["evaluation"] for row in done]
    findings = [row.get("finding") or {} for row in done]
    first = rows[0]
    return Line(
        first["data"],
        first["kind"],
        first["role"],
        first["method"],
        len(done),
        _mean(e.get("average") for e in evaluations),
        _mean(e.get("balanced_average") for e in evaluations),
        _mean(e.get("id_accuracy") for e in evaluations),
        _mean(row.get("ece") for row in done),
        _mean(row["seconds"]["run"] for row in done),
        _mean(f.get("stages") for f in findings),
        _mean(f.get("found") for f in findings),
        _mean(f.get("area") for f in findings),
        errors=[row["error"] for row in rows if "error" in row],
    )


def _compare(line: Line, plain: Line | None, best: Line | None) -> None:
    if plain is None:
        return
    if line.kind == ORDINARY:
        line.harm = _less(plain.accuracy, line.accuracy)
    else:
        line.gain = _less(line.balanced, plain.balanced)
        line.possible = None if best is None else _less(best.balanced, plain.balanced)
        if line.gain is not None and line.possible is not None and _costs(line):
            line.recovered = line.gain / line.possible
    if line.seconds is not None and plain.seconds:
        line.times_plain = line.seconds / plain.seconds


def _budget(rows: Sequence[Row], plain: Sequence[Row]) -> float | None:
    """The share of runs that lose no more than the budget to plain training with their seed."""
    accuracy = {r["seed"]: r["evaluation"].get("id_accuracy") for r in plain if "error" not in r}
    losses = [
        _less(accuracy.get(row["seed"]), row["evaluation"].get("id_accuracy"))
        for row in rows
        if "error" not in row
    ]
    return _mean(None if loss is None else loss <= BUDGET for loss in losses)


def summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Per method and role (and over both): the figures to judge it by."""
    methods = list(dict.fromkeys(line.method for line in lines))
    out = []
    for method in methods:
        for role in (SETTINGS, REPORT, None):
            own = [x for x in lines if x.method == method and role in (x.role, None)]
            if own:
                out.append({"method": method, "role": role or "both", **_figures(own)})
    return out


def _figures(lines: Sequence[Line]) -> dict[str, Any]:
    ordinary = [x for x in lines if x.kind == ORDINARY]
    found: dict[str, Any] = {
        "harm": _mean(x.harm for x in ordinary),
        "worst_harm": _extreme(ordinary, "harm", max),
        "claims_on_ordinary": _mean(None if x.stages is None else x.stages > 0 for x in ordinary),
        "ece": _mean(x.ece for x in lines),
        "worst_ece": _extreme(lines, "ece", max),
        # The first run of a process is slower than all others; the median does not mind.
        "times_plain": _median(x.times_plain for x in lines),
        "within_budget": _mean(x.within_budget for x in lines),
        "sets": len(lines),
        "failed": sum(len(x.errors) for x in lines),
    }
    for kind in (PLANTED, BIASED):
        own = [x for x in lines if x.kind == kind]
        found[kind] = {
            "recovered": _mean(x.recovered for x in own),
            "recovered_together": _together(own),
            "worst_recovered": _extreme(own, "recovered", min),
            "gain": _mean(x.gain for x in own),
            "worst_gain": _extreme(own, "gain", min),
            "found": _mean(x.found for x in own),
            "found_where_it_costs": _mean(x.found for x in own if _costs(x)),
            "area": _mean(x.area for x in own),
        }
    return found


def _costs(line: Line) -> bool:
    """Whether plain training leans on the pattern so much that the true groups gain by it."""
    return line.possible is not None and line.possible >= LEAST_TO_RECOVER


def _together(lines: Sequence[Line]) -> float | None:
    """All gains over all that could be gained: a set with little to gain says little."""
    known = [x for x in lines if x.gain is not None and x.possible is not None]
    possible = sum(max(0.0, x.possible or 0.0) for x in known)
    return sum(x.gain or 0.0 for x in known) / possible if possible else None


def _extreme(lines: Sequence[Line], name: str, pick: Any) -> dict[str, Any] | None:
    """The largest or smallest figure, with the set it is of."""
    known = [(getattr(x, name), x.data) for x in lines if getattr(x, name) is not None]
    if not known:
        return None
    value, data = pick(known)
    return {"value": value, "data": data}


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _mean(values: Iterable[Any]) -> float | None:
    known = [float(v) for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _median(values: Iterable[Any]) -> float | None:
    known = [float(v) for v in values if v is not None]
    return float(np.median(known)) if known else None
