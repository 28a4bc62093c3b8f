"""Does trust, which knows no attribute, tell good rankings from bad ones?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sebra.errors import SebraError, UsageError
from sebra.ranking.registry import ranker_class
from sebra.ranking.trust import trust_in, witness_of
from sebra_bench.plan import Spec, parse_specs, with_shared
from sebra_bench.studies.common import (
    MARKERS,
    Study,
    new_figure,
    ranker_settings,
    require_true_groups,
    save_figure,
)
from sebra_bench.tables import Table
from sebra_bench.workbench import Workbench

# Good and bad settings of every ranker over frozen features.
RANKERS = parse_specs(
    "sebra,sebra[resolution=epoch],sebra[lr=0.005],sebra[lr=0.01,resolution=epoch],"
    "sebra[lr=3,resolution=epoch],sebra[epochs=2],sebra[p_critical=0.55],sebra[p_critical=0.95],"
    "sebra[use_u=false],sebra[beta=0.4],erm,erm[lr=3],erm[lr=0.01],random,"
    "peel,peel[stages=1],peel[stages=2],peel[penalty=0.1,penalty_contrast=0.03],"
    "peel[penalty=1e-5,penalty_contrast=1e-5]"
)
STYLES = {"sebra": "0.0", "erm": "0.45", "random": "0.75", "peel": "0.25"}


def trust(bench: Workbench) -> Study:
    """Trust beside the true Somers' D, over rankers, settings and seeds."""
    if not bench.samples.attributes:
        raise UsageError(
            f"study trust: {bench.samples.source} has no attribute columns, so there is no true "
            "Somers' D to compare trust with"
        )
    require_true_groups(bench, "trust")
    specs = with_shared(RANKERS, ranker_settings(bench), ranker_class)
    runs: list[dict[str, Any]] = []
    left_out: list[str] = []
    for seed in range(bench.options.seeds):
        witness = witness_of(bench.to_rank(seed).rank_task())
        for spec in specs:
            try:
                row = bench.ranking(spec, seed)
            except SebraError as error:  # a ranking that collapsed is refused, rightly
                left_out.append(f"{spec.label}, seed {seed}: {error}")
                continue
            found = trust_in(witness, bench._ranking_table(spec, seed).table["rank"].to_numpy())
            if found is not None and row["ranking"]["somers_d"] is not None:
                runs.append(_run(bench, spec, seed, row, found.value, found.figures))
    if not runs:
        raise UsageError("study trust: nothing to compare; too few samples or only one true group")
    return Study([_table(bench, runs, left_out)], _draw(bench, runs), {"trust": summary(runs)})


def _run(
    bench: Workbench,
    spec: Spec,
    seed: int,
    row: dict[str, Any],
    value: float,
    figures: dict[str, float],
) -> dict[str, Any]:
    return {
        "data": bench.name,
        "ranker": spec.label,
        "seed": seed,
        "somers_d": row["ranking"]["somers_d"],
        "trust": value,
        **figures,
    }


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, float | int | None]:
    """Rank correlation of trust with the true Somers' D, and its mean error."""
    from scipy import stats

    d = np.array([r["somers_d"] for r in runs])
    t = np.array([r["trust"] for r in runs])
    varied = len(runs) > 2 and len(np.unique(d)) > 1 and len(np.unique(t)) > 1
    return {
        "runs": len(runs),
        "spearman": float(stats.spearmanr(t, d).statistic) if varied else None,
        "mean_error": float(np.abs(t - d.clip(0, 1)).mean()),
    }


def _table(bench: Workbench, runs: Sequence[dict[str, Any]], left_out: Sequence[str]) -> Table:
    table = Table(f"{bench.name}: trust without attributes beside the true Somers' D")
    for label in dict.fromkeys(r["ranker"] for r in runs):
        mine = [r for r in runs if r["ranker"] == label]
        shown = {"ranker": label}
        for key in ("somers_d", "trust", "agreement"):
            shown[key.replace("somers_d", "Somers' D")] = f"{np.mean([r[key] for r in mine]):.2f}"
        table.shown.append(shown)
    table.figures = [dict(r) for r in runs]
    found = summary(runs)
    if found["spearman"] is not None:
        table.remarks.append(
            f"rank correlation over {found['runs']} runs: {found['spearman']:.2f}; mean error of "
            f"trust as a forecast of Somers' D: {found['mean_error']:.2f}"
        )
    table.remarks += [f"left out: {text}" for text in left_out]
    return table


def _draw(bench: Workbench, runs: Sequence[dict[str, Any]]) -> list[Path]:
    figure, axes = new_figure(4.6, 4.2)
    kinds = list(dict.fromkeys(r["ranker"].partition("[")[0] for r in runs))
    for m, kind in enumerate(kinds):
        mine = [r for r in runs if r["ranker"].partition("[")[0] == kind]
        axes.plot(
            [r["somers_d"] for r in mine],
            [r["trust"] for r in mine],
            linestyle="none",
            marker=MARKERS[m % len(MARKERS)],
            color=STYLES.get(kind, "0.5"),
            markeredgecolor="black",
            alpha=0.8,
            label=kind,
        )
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlabel("true Somers' D (needs the attributes)")
    axes.set_ylabel("trust (without attributes)")
    axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, bench, "trust")
