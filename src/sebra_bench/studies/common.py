"""What studies share: their result, rankers over seeds, and how figures look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sebra.errors import CollapsedError, UsageError
from sebra.measuring.ranks import known_attributes
from sebra.ranking.registry import ranker_class
from sebra.samples.table import true_groups
from sebra_bench.plan import Spec, with_shared
from sebra_bench.summary import RANKING_TITLES, Entry
from sebra_bench.tables import Table
from sebra_bench.workbench import Workbench

GREYS = ("0.15", "0.5", "0.8")
HATCHES = ("", "///", "...")
MARKERS = ("o", "s", "^", "D")
LINES = (("-", "o", "0.0"), ("--", "s", "0.35"), (":", "^", "0.45"), ("-.", "D", "0.6"))


@dataclass
class Study:
    """A study's tables, the figures drawn from them, and its part of `metrics.json`."""

    tables: list[Table]
    figures: list[Path] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)


def ranked(bench: Workbench, specs: Sequence[Spec]) -> list[Entry]:
    """Every ranker on every seed, seed by seed."""
    full = _with_settings(bench, specs)
    for seed in range(bench.options.seeds):
        for spec in full:
            bench.find_ranking(spec, seed)
    entries = [Entry(spec.label) for spec in full]
    for seed in range(bench.options.seeds):
        for spec, entry in zip(full, entries, strict=True):
            try:
                entry.rows.append(bench.ranking(spec, seed))
            except CollapsedError as error:  # a finding of the study, for that entry alone
                entry.reason = f"seed {seed}: {error}"
                bench.progress.message(f"{entry.label} left out: {entry.reason}")
    return entries


def _with_settings(bench: Workbench, specs: Sequence[Spec]) -> tuple[Spec, ...]:
    return with_shared(specs, ranker_settings(bench), ranker_class)


def ranker_settings(bench: Workbench) -> tuple[str, ...]:
    """The settings of a study that only ranks; those of methods are refused."""
    if bench.options.method_overrides:
        first = bench.options.method_overrides[0]
        raise UsageError(f"--set {first}: this study only ranks; write --set rank.{first}")
    return bench.options.ranker_overrides


def require_true_groups(bench: Workbench, study: str) -> None:
    """Refuses data on which no ranking could be scored: some class needs two true groups."""
    samples = bench.samples
    rows = samples.rows("train")
    rows = rows[known_attributes(samples)[rows]]
    groups, labels = true_groups(samples)[rows], samples.labels[rows]
    if not any(len(np.unique(groups[labels == c])) > 1 for c in np.unique(labels)):
        raise UsageError(
            f"study {study}: in {samples.source} no class has samples that break an attribute (or "
            "none is known), so the quality of a ranking cannot be measured"
        )


def measures_of(entries: Sequence[Entry]) -> list[str]:
    """The measures of quality that these rankings have."""
    keys = [k for k in RANKING_TITLES if k != "buckets"]
    found = [k for k in keys if any(e.figure(f"ranking.{k}") for e in entries)]
    if not found:
        raise UsageError(
            "study: this data has neither attributes nor a test split, so the quality of a "
            "ranking cannot be measured"
        )
    return found


def new_figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure and its axes, away from matplotlib's global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, bench: Workbench, name: str) -> list[Path]:
    """Writes the figure as PNG and SVG into the run folder."""
    out = []
    for suffix in ("png", "svg"):
        path = bench.folder.path / f"{name}.{suffix}"
        figure.savefig(path, dpi=160)
        out.append(path)
    return out
