"""What ranking and debiasing cost beside plain training (the paper's time breakdown)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sebra.debiasing.registry import method_class
from sebra.ranking.registry import ranker_class
from sebra_bench.layouts import layout_of
from sebra_bench.paper import Paper
from sebra_bench.plan import Spec, with_shared
from sebra_bench.seeds import mean_std
from sebra_bench.studies.common import Study, new_figure, save_figure
from sebra_bench.tables import Table, cell
from sebra_bench.workbench import Workbench

PHASES = {
    "rank": "Sebra, ranking",
    "debias": "Sebra, contrastive debiasing",
    "erm": "ERM",
}


def cost(bench: Workbench) -> Study:
    """Wall-clock seconds of the ranking, of debiasing on it, and of ERM, the data being ready."""
    options = bench.options
    (ranker,) = with_shared([Spec("sebra", "sebra")], options.ranker_overrides, ranker_class)
    methods = [Spec("sebra", "sebra"), Spec("erm", "erm")]
    debiaser, plain = with_shared(methods, options.method_overrides, method_class)
    runs: list[dict[str, float]] = []
    for seed in range(options.seeds):
        ranking = bench.ranking(ranker, seed)
        debiased = bench.model(debiaser, seed, ranker)
        erm = bench.model(plain, seed, None)
        runs.append(
            {
                "rank": ranking["seconds"]["rank"],
                "debias": debiased["seconds"]["debias"],
                "erm": erm["seconds"]["debias"],
            }
        )
    seconds = mean_std(runs)
    table = _table(bench, seconds)
    epochs = {s.label: bench.method_config(s).epochs for s in (debiaser, plain)}
    table.remarks.append(
        f"epochs: debiasing {epochs['sebra']}, ERM {epochs['erm']}; a first run on a GPU includes "
        "tuning its kernels"
    )
    return Study([table], _draw(bench, seconds), {"cost_seconds": seconds})


def _table(bench: Workbench, seconds: dict[str, Any]) -> Table:
    paper = Paper(layout_of(bench.prepared.source.data))
    table = Table(f"{bench.name}: time of ranking and debiasing")
    for phase, title in PHASES.items():
        found, minutes = seconds[phase], paper.minutes(phase)
        relative = found["mean"] / seconds["erm"]["mean"]
        figures = {"phase": title, "seconds": found, "times_erm": relative}
        shown = {
            "phase": title,
            "seconds": cell(found, None, 2),
            "times ERM": f"{relative:.2f}",
        }
        if minutes is not None:
            theirs = minutes / (paper.minutes("erm") or minutes)
            shown |= {"paper, minutes": f"{minutes:g}", "paper, times ERM": f"{theirs:.2f}"}
            figures |= {"paper_minutes": minutes, "paper_times_erm": theirs}
        table.shown.append(shown)
        table.figures.append(figures)
    if paper.minutes("erm") is not None:
        table.remarks.append("the paper: one RTX 3090, ResNet-50; compare the ratios to ERM")
    return table


def _draw(bench: Workbench, seconds: dict[str, Any]) -> list[Path]:
    figure, axes = new_figure(6, 2.2)
    names: Sequence[str] = list(PHASES)[::-1]
    means = [seconds[name]["mean"] for name in names]
    errors = [seconds[name]["std"] for name in names]
    axes.barh(range(len(names)), means, xerr=errors, color="0.6", edgecolor="black", capsize=2)
    axes.set_yticks(range(len(names)), [PHASES[name] for name in names])
    axes.set_xlabel("wall-clock seconds, mean over seeds")
    return save_figure(figure, bench, "cost")
