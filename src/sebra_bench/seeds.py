"""Runs with several seeds, and figures over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from statistics import fmean, stdev
from typing import Any

from sebra.samples.table import SPLITS
from sebra.workflows.prepared import Prepared


def seeded(prepared: Prepared, seed: int) -> Prepared:
    """The same data set for a run with another seed; what lies on the device is shared."""
    # All splits first: unreadable images leave `samples` when their split is loaded.
    for name in SPLITS:
        if len(prepared.samples.rows(name)):
            prepared.task(name)
    return replace(prepared, source=replace(prepared.source, seed=seed))


def mean_std(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the same object of several runs: every number becomes `{mean, std, n}`.

    The deviation is the sample's (n - 1), 0 for a single run. `n` counts the runs that have the
    figure. Text and flags stay as they are where all runs agree and become a list, one entry per
    run, where they do not. Lists are joined by the `name` of their entries, else by position.
    """
    return {key: _join([run[key] for run in runs if key in run]) for key in _keys(runs)}


def _join(values: list[Any]) -> Any:
    given = [v for v in values if v is not None]
    if not given:
        return None
    if all(isinstance(v, Mapping) for v in given):
        return mean_std(given)
    if all(isinstance(v, Real) and not isinstance(v, bool) for v in given):
        numbers = [float(v) for v in given]
        std = stdev(numbers) if len(numbers) > 1 else 0.0
        return {"mean": fmean(numbers), "std": std, "n": len(numbers)}
    if all(isinstance(v, (list, tuple)) for v in given):
        return _join_lists(given)
    return given[0] if all(v == given[0] for v in given) else given


def _join_lists(lists: list[Sequence[Any]]) -> list[Any]:
    entries = [entry for items in lists for entry in items]
    if entries and all(isinstance(e, Mapping) and "name" in e for e in entries):
        names = dict.fromkeys(e["name"] for e in entries)
        return [mean_std([e for e in entries if e["name"] == name]) for name in names]
    longest = max(len(items) for items in lists)
    return [_join([items[i] for items in lists if i < len(items)]) for i in range(longest)]


def _keys(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run))
