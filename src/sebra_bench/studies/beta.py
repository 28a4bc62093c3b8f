"""How much the strength of the upweighting matters (the paper's sensitivity to beta)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sebra_bench.paper import Paper
from sebra_bench.plan import Spec
from sebra_bench.studies.common import (
    GREYS,
    MARKERS,
    Study,
    measures_of,
    new_figure,
    ranked,
    save_figure,
)
from sebra_bench.summary import RANKING_TITLES, Entry, metrics_of
from sebra_bench.tables import rankings_table
from sebra_bench.workbench import Workbench

# Both sides of 1: the paper's text prefers (0, 1), its settings are 1.25 and 1.42, whose inverses
# are 0.8 and 0.7.
BETAS = (0.5, 0.7, 0.8, 1.0, 1.25, 1.42, 2.0)


def beta(bench: Workbench) -> Study:
    """Rankings over a sweep of beta, everything else as in the preset."""
    specs = [Spec(f"sebra[beta={b:g}]", "sebra", (f"beta={b:g}",)) for b in BETAS]
    entries = ranked(bench, specs)
    measures = measures_of(entries)
    table = rankings_table(f"{bench.name}: sensitivity to beta", entries, Paper(None))
    table.remarks.append("u = p^(1/beta); p_critical stays as it is, so lambda moves with beta")
    return Study([table], _draw(bench, entries, measures), metrics_of([], entries))


def _draw(bench: Workbench, entries: Sequence[Entry], measures: Sequence[str]) -> list[Path]:
    figure, axes = new_figure(6, 3.6)
    for m, key in enumerate(measures):
        points = [
            (b, found)
            for b, entry in zip(BETAS, entries, strict=True)
            if (found := entry.figure(f"ranking.{key}"))
        ]
        axes.errorbar(
            [b for b, _ in points],
            [found["mean"] for _, found in points],
            yerr=[found["std"] for _, found in points],
            marker=MARKERS[m % len(MARKERS)],
            linestyle=("-", "--", ":")[m % 3],
            color=GREYS[m % 2],
            capsize=2,
            label=RANKING_TITLES[key],
        )
    axes.axvline(1.0, color="0.7", linewidth=0.8)
    axes.set_xlabel("beta (upweighting u = p^(1/beta))")
    axes.set_ylabel("PD (points)" if list(measures) == ["pd"] else "agreement with the true groups")
    axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, bench, "beta")
