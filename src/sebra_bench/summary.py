"""From rows of single runs to figures over seeds, beside the paper's, and against ERM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from sebra_bench.rows import Row
from sebra_bench.seeds import mean_std

BASELINE = "erm"
REMARKS = {"lle": "general augmentations"}
RANKING_TITLES = {
    "somers_d": "Somers' D",
    "tau_b": "size-matched tau-b",
    "plain_tau_b": "plain tau-b",
    "published": "published score",
    "pd": "PD",
    "buckets": "buckets",
}
_LAST = "selection.mean_of_last_epochs"


@dataclass
class Entry:
    """One line of a table: a method (or ranker) with its runs, or the reason why it has none."""

    label: str
    uses_groups: bool = False
    rows: list[Row] = field(default_factory=list)
    reason: str | None = None

    @property
    def shown(self) -> str:
        remark = REMARKS.get(self.label.partition("[")[0])
        return f"{self.label} ({remark})" if remark else self.label

    def figure(self, key: str) -> dict[str, Any] | None:
        """`{mean, std, n}` of a figure over the runs that have it."""
        values = [{"x": v} for row in self.rows if (v := value_of(row, key)) is not None]
        return mean_std(values)["x"] if values else None


def worst_range(entry: Entry) -> str | None:
    """Between which figures the worst group lies, where a run has groups too small to judge."""
    ends = [r["evaluation"].get("worst_group_range") for r in entry.rows]
    known = [pair for pair in ends if pair]
    if not known:
        return None
    sure = [v for r in entry.rows if (v := value_of(r, "worst_group")) is not None]
    low, high = (fmean([*(pair[k] for pair in known), *sure]) for k in (0, 1))
    return f"{low:.0f} to {high:.0f} (groups too small)"


def value_of(row: Mapping[str, Any], key: str) -> float | None:
    """A figure of a model's row: of its evaluation unless the key names another part."""
    if key.startswith("selection."):
        return _number(row.get("selection", {}).get(key.removeprefix("selection.")))
    if key.startswith("ranking."):
        return _number(row.get("ranking", {}).get(key.removeprefix("ranking.")))
    if key.startswith("gaps."):
        return _number(row["evaluation"].get("gaps", {}).get(key.removeprefix("gaps.")))
    return _number(row["evaluation"].get(key))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def columns_of(entries: Sequence[Entry]) -> dict[str, str]:
    """Keys and titles of the figures these models have, in the order of the paper's tables."""
    rows = [row for entry in entries for row in entry.rows]
    gaps = dict.fromkeys(g for row in rows for g in row["evaluation"].get("gaps", {}))
    if gaps or any({"worst_group", "worst_group_range"} & row["evaluation"].keys() for row in rows):
        return {
            "id_accuracy": "I.D. acc.",
            **{f"gaps.{g}": f"{g} gap" for g in gaps},
            **({"average_gap": "average gap"} if gaps else {}),
            "balanced_average": "group-balanced avg.",
            "worst_group": "worst group",
        }
    found = {"average": "acc. at best val. epoch"}
    if any(value_of(row, _LAST) is not None for row in rows):
        found[_LAST] = "acc., mean of last 5 epochs"
    return found


def headline_of(entries: Sequence[Entry]) -> list[str]:
    """The figures that decide: gaps and worst group, or accuracies where groups are unknown."""
    return [k for k in columns_of(entries) if not k.startswith("gaps.")]


@dataclass(frozen=True)
class Difference:
    """A method minus the baseline, paired over runs with the same data and seed."""

    label: str
    key: str
    mean: float
    standard_error: float | None  # None of a single pair
    n: int

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"mean": self.mean, "n": self.n}
        if self.standard_error is not None:
            out["standard_error"] = self.standard_error
        return out


def over_baseline(entries: Sequence[Entry]) -> list[Difference]:
    """Every method minus ERM, figure by figure; empty without ERM."""
    base = next((e for e in entries if e.label == BASELINE), None)
    if base is None:
        return []
    found = []
    for entry in entries:
        if entry is base:
            continue
        for key in headline_of(entries):
            pairs = _pairs(entry.rows, base.rows, key)
            if pairs:
                error = stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else None
                found.append(Difference(entry.label, key, fmean(pairs), error, len(pairs)))
    return found


def _pairs(rows: Sequence[Row], base: Sequence[Row], key: str) -> list[float]:
    theirs = {(r["data"], r["seed"]): value_of(r, key) for r in base}
    out = []
    for row in rows:
        ours, other = value_of(row, key), theirs.get((row["data"], row["seed"]))
        if ours is not None and other is not None:
            out.append(ours - other)
    return out


def metrics_of(entries: Sequence[Entry], rankings: Sequence[Entry]) -> dict[str, Any]:
    """The object for `metrics.json`: every figure as `{mean, std, n}`."""
    out: dict[str, Any] = {"methods": {}}
    for entry in entries:
        out["methods"][entry.shown] = _joined(entry, ("evaluation", "selection", "ranking"))
    if rankings:
        out["rankings"] = {e.label: _joined(e, ("ranking",)) for e in rankings}
    for found in over_baseline(entries):
        against = out.setdefault(f"over_{BASELINE}", {}).setdefault(found.label, {})
        against[found.key] = found.to_dict()
    return out


def _joined(entry: Entry, parts: Sequence[str]) -> dict[str, Any]:
    if not entry.rows:
        return {"reason": entry.reason}
    kept = [
        {k: row[k] for k in (*parts, "seconds", "peak_memory_mib") if k in row}
        for row in entry.rows
    ]
    out = {"seeds": [row["seed"] for row in entry.rows], **mean_std(kept)}
    return {**out, "reason": entry.reason} if entry.reason else out
