"""Results of one data set, and the tables that show them. Needs no network and no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sebra_bench.paper import Paper
from sebra_bench.plan import data_name
from sebra_bench.summary import Entry
from sebra_bench.tables import Table, baseline_table, methods_table, rankings_table


@dataclass
class Results:
    """The runs on one data set (or on several variants of it)."""

    data: str
    layout: str | None
    models: list[Entry]
    rankings: list[Entry]


def pooled(data: Sequence[str], found: Sequence[Results]) -> list[Results]:
    """Variants of one data set (`celeba:PATH?split=0`, `…?split=1`) taken together."""
    kinds: dict[str, list[Results]] = {}
    for name, results in zip(data, found, strict=True):
        kinds.setdefault(name.partition("?")[0], []).append(results)
    return [
        Results(
            f"{data_name(base)}, {len(members)} variants together",
            members[0].layout,
            _joined([m.models for m in members]),
            _joined([m.rankings for m in members]),
        )
        for base, members in kinds.items()
        if len(members) > 1
    ]


def _joined(lists: Sequence[Sequence[Entry]]) -> list[Entry]:
    out: dict[str, Entry] = {}
    for entry in (e for entries in lists for e in entries):
        joined = out.setdefault(entry.label, Entry(entry.label, entry.uses_groups))
        joined.rows += entry.rows
        joined.reason = joined.reason or entry.reason
    return list(out.values())


def result_tables(results: Sequence[Results]) -> list[Table]:
    """Per data set: the methods, the methods against ERM, the rankings."""
    out = []
    for r in results:
        paper = Paper(r.layout)
        table = methods_table(r.data, r.models, paper)
        rows = [row for e in r.models for row in e.rows]
        table.remarks += [*_small_groups(rows), *_conditions(rows)]
        out.append(table)
        out.append(baseline_table(f"{r.data}: against ERM", r.models))
        ranks = rankings_table(f"{r.data}: rankings", r.rankings, paper)
        if not r.models:
            ranks.remarks += _conditions([row for e in r.rankings for row in e.rows])
        out.append(ranks)
    return [table for table in out if table.shown]


def _small_groups(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Names the test groups that are too small to be the worst one, with their accuracy."""
    accuracies: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        for group in row["evaluation"].get("groups", ()):
            if group["small"]:
                at = (group["name"], group["n_test"])
                accuracies.setdefault(at, []).append(group["accuracy"])
    return [
        f"too small to count as the worst group: {name} ({n} test samples), accuracy "
        f"{min(found):.1f} to {max(found):.1f} over all runs"
        for (name, n), found in accuracies.items()
    ]


def _conditions(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line per way in which rows were measured."""
    return list(dict.fromkeys(_condition(row) for row in rows))


def _condition(row: dict[str, Any]) -> str:
    network, hardware = row["network"], row["hardware"]
    size = f" at {network['image_size']} px" if "image_size" in network else ""
    machine = hardware.get("gpu") or f"{hardware['cpu']}, {hardware['threads']} threads"
    commit = f", commit {row['commit']}" if "commit" in row else ""
    mode = f"{network['mode']} mode, {network['backbone']}{size}, preset {row['preset']}"
    return f"measured in {mode}, on {machine}{commit}"
