"""What peeling does differently: shortcuts stage by stage, and the reversal it avoids.

The faithful method takes learned samples away; in what is left the first shortcut predicts the
opposite class, so its reverse is learned next and the second shortcut never gets its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sebra.engine.step import label_probability
from sebra.errors import UsageError
from sebra.measuring.ranks import column_d
from sebra.ranking.registry import ranker_class
from sebra.samples.table import alignment
from sebra.workflows.benching.plan import Spec, with_shared
from sebra.workflows.benching.rows import Row
from sebra.workflows.benching.studies.common import (
    GREYS,
    HATCHES,
    MARKERS,
    Study,
    ranker_settings,
    require_true_groups,
    save_figure,
)
from sebra.workflows.benching.studies.curves import Look, at_epochs, curve, over_seeds, shown_epochs
from sebra.workflows.benching.tables import ABSENT, Table
from sebra.workflows.benching.workbench import Workbench
from sebra.workflows.prepared import Prepared

PEEL = Spec("peel", "peel")
# As published: whole epochs, and enough of them for what follows once the first shortcut is gone.
FAITHFUL = Spec("sebra", "sebra", ("resolution=epoch", "epochs=50"))


def peel(bench: Workbench) -> Study:
    """Alignment with every attribute: of peel's stages, and of the faithful method's epochs."""
    names = list(bench.samples.attributes)
    if not names:
        raise UsageError(
            f"study peel: {bench.samples.source} has no attribute columns, so the alignment of "
            "stages cannot be measured"
        )
    require_true_groups(bench, "peel")
    peeled, faithful = with_shared((PEEL, FAITHFUL), ranker_settings(bench), ranker_class)
    stages: list[Row] = []
    curves: list[Row] = []
    for seed in range(bench.options.seeds):
        stages.append(bench.ranking(peeled, seed))
        curves.append(curve(bench, "peel", faithful, seed, _alignments))
    found = stage_means(stages, names)
    tables = [_stage_table(bench, stages, found, names), _curve_table(bench, curves, names)]
    metrics = {"peel": {"stages": found, "somers_d": _mean_d(stages)}}
    return Study(tables, _draw(bench, found, curves, names), metrics)


def _alignments(prepared: Prepared) -> Look:
    """Somers' D of p_y over the training samples given each attribute, class-wise.

    Above zero the network finds aligned samples easier; below, it has learned the reverse.
    """
    task, samples = prepared.rank_task(), prepared.samples
    rows = samples.rows("train")
    names, aligned = alignment(samples)
    everyone = torch.arange(len(task), device=task.device)
    labels = samples.labels[rows]
    known = [a.codes[rows] >= 0 for a in samples.attributes.values()]

    def look(network: torch.nn.Module) -> Mapping[str, float]:
        p = label_probability(network, task, everyone).cpu().numpy()
        found = {
            n: column_d(p[here], aligned[rows, k][here], labels[here])
            for k, (n, here) in enumerate(zip(names, known, strict=True))
        }
        return {n: d for n, d in found.items() if d is not None}

    return look


def stage_means(rows: Sequence[Row], names: Sequence[str]) -> list[dict[str, Any]]:
    """Per stage, over the seeds that have it: its mean alignment with each attribute."""
    most = max(len(row["ranking"].get("stages", ())) for row in rows)
    out = []
    for k in range(most):
        found = [row["ranking"]["stages"][k] for row in rows if len(row["ranking"]["stages"]) > k]
        given: dict[str, float | None] = {}
        for name in names:
            values = [s["given"][name] for s in found if s["given"].get(name) is not None]
            given[name] = float(np.mean(values)) if values else None
        out.append({"name": found[0]["name"], "seeds": len(found), "given": given})
    return out


def _mean_d(rows: Sequence[Row]) -> float | None:
    values = [row["ranking"]["somers_d"] for row in rows]
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _stage_table(
    bench: Workbench, rows: Sequence[Row], found: Sequence[dict[str, Any]], names: Sequence[str]
) -> Table:
    table = Table(f"{bench.name}: alignment of peel's stages with the attributes")
    for stage in found:
        shown = {"stage": stage["name"], "seeds": f"{stage['seeds']} of {len(rows)}"}
        for name in names:
            value = stage["given"][name]
            shown[name] = ABSENT if value is None else f"{value:.2f}"
        table.shown.append(shown)
    if not found:
        table.shown.append({"stage": "none found", "seeds": f"0 of {len(rows)}"})
    table.figures = [
        {"seed": row["seed"], "stage": stage["name"], **stage["given"]}
        for row in rows
        for stage in row["ranking"].get("stages", ())
    ]
    table.remarks.append(
        "class-wise Somers' D of the stage column given the attribute: 1 where every aligned "
        "sample lies above every conflicting one, 0 where they are unrelated"
    )
    return table


def _curve_table(bench: Workbench, rows: Sequence[Row], names: Sequence[str]) -> Table:
    table = Table(f"{bench.name}: alignment of the faithful method, epoch by epoch")
    epochs = shown_epochs(rows)
    for name in names:
        table.shown.append({"attribute": name, **at_epochs(rows, name, epochs, digits=2)})
    table.figures = [{"seed": row["seed"], **point} for row in rows for point in row["curve"]]
    table.remarks.append(
        "class-wise Somers' D of p_y over all training samples given the attribute: below zero "
        "the network goes by the reverse of the shortcut"
    )
    return table


def _draw(
    bench: Workbench,
    found: Sequence[dict[str, Any]],
    curves: Sequence[Row],
    names: Sequence[str],
) -> list[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    width = 0.8 / len(names)
    for m, name in enumerate(names):
        left.bar(
            [i + (m - (len(names) - 1) / 2) * width for i in range(len(found))],
            [stage["given"][name] or 0.0 for stage in found],
            width,
            color=GREYS[m % len(GREYS)],
            hatch=HATCHES[m % len(HATCHES)],
            edgecolor="black",
            label=name,
        )
        epochs, mean, _ = over_seeds(curves, name)
        right.plot(
            epochs,
            mean,
            linestyle=("-", "--", ":")[m % 3],
            marker=MARKERS[m % len(MARKERS)],
            markevery=max(1, len(epochs) // 8),
            markersize=4,
            color=GREYS[m % 2],
            label=name,
        )
    left.set_xticks(range(len(found)), [stage["name"].replace("_", " ") for stage in found])
    left.set_xlabel("stages of peel")
    left.set_ylabel("alignment with the attribute\n(class-wise Somers' D)")
    right.set_xlabel("epochs of the faithful method")
    for axes in (left, right):
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_ylim(-1.05, 1.05)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, bench, "peel")
