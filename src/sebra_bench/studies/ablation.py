"""What the two parts of the ranking objective are worth (the paper's ablation)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sebra_bench.layouts import layout_of
from sebra_bench.paper import Paper
from sebra_bench.plan import Spec
from sebra_bench.studies.common import (
    GREYS,
    HATCHES,
    Study,
    measures_of,
    new_figure,
    ranked,
    save_figure,
)
from sebra_bench.summary import RANKING_TITLES, Entry, metrics_of
from sebra_bench.tables import rankings_table
from sebra_bench.workbench import Workbench

VARIANTS = {
    Spec("sebra", "sebra"): "u and v\n(Sebra)",
    Spec("sebra[use_u=false]", "sebra", ("use_u=false",)): "v alone",
    Spec("erm", "erm"): "neither\n(ERM)",
    Spec("erm[by=last]", "erm", ("by=last",)): "ERM, last\nepoch alone",
    Spec("random", "random"): "random\norder",
}


def ablation(bench: Workbench) -> Study:
    """Rankings with and without the upweighting u and the selection v, and a random order."""
    entries = ranked(bench, list(VARIANTS))
    measures = measures_of(entries)
    paper = Paper(layout_of(bench.prepared.source.data))
    source = "ablation" if paper.ranking("sebra", "ablation") else "rankings"
    table = rankings_table(f"{bench.name}: ablation of the ranking", entries, paper, source)
    table.remarks.append(
        "sebra[use_u=false]: selection v without upweighting u; erm: neither of them, ranked by "
        "when a sample is learned; erm[by=last]: by its probability after the last epoch"
    )
    figures = _draw(bench, entries, measures, paper, source)
    return Study([table], figures, metrics_of([], entries))


def _draw(
    bench: Workbench, entries: Sequence[Entry], measures: Sequence[str], paper: Paper, source: str
) -> list[Path]:
    figure, axes = new_figure(7, 3.6)
    width = 0.8 / len(measures)
    for m, key in enumerate(measures):
        found = [e.figure(f"ranking.{key}") for e in entries]
        at = [i + (m - (len(measures) - 1) / 2) * width for i in range(len(entries))]
        axes.bar(
            at,
            [f["mean"] if f else 0.0 for f in found],
            width,
            yerr=[f["std"] if f else 0.0 for f in found],
            capsize=2,
            color=GREYS[m % len(GREYS)],
            edgecolor="black",
            hatch=HATCHES[m % len(HATCHES)],
            label=RANKING_TITLES[key],
        )
        _mark_paper(axes, at, entries, key, paper, source)
    axes.set_xticks(range(len(entries)), list(VARIANTS.values()))
    axes.set_xlabel("parts of the ranking objective")
    axes.set_ylabel("PD (points)" if measures == ["pd"] else "agreement with the true groups")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, bench, "ablation")


def _mark_paper(
    axes: Any, at: Sequence[float], entries: Sequence[Entry], key: str, paper: Paper, source: str
) -> None:
    given = [
        (x, found[key]["mean"])
        for x, entry in zip(at, entries, strict=True)
        if key in (found := paper.ranking(entry.label, source))
        and not paper.unverified(entry.label, source)
    ]
    if given:
        axes.plot(
            [x for x, _ in given],
            [y for _, y in given],
            linestyle="none",
            marker="D",
            markersize=7,
            markerfacecolor="white",
            markeredgecolor="black",
            label="the paper",
        )
