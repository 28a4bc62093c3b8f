"""Samples with a shortcut are learned sooner: training loss with and without it, under ERM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra.engine.step import label_probability
from sebra.errors import UsageError
from sebra.measuring.ranks import known_attributes
from sebra.ranking.registry import ranker_class
from sebra.samples.table import Samples, alignment
from sebra.workflows.prepared import Prepared
from sebra_bench.plan import Spec, with_shared
from sebra_bench.rows import Row
from sebra_bench.studies.common import (
    LINES,
    Study,
    new_figure,
    ranker_settings,
    save_figure,
)
from sebra_bench.studies.curves import Look, at_epochs, curve, over_seeds, shown_epochs
from sebra_bench.tables import Table
from sebra_bench.workbench import Workbench

ERM = Spec("erm", "erm")
LEAST_P = 1e-12  # a probability of zero has no logarithm


def symmetry(bench: Workbench) -> Study:
    """Mean training loss per epoch of the samples with every, some and no shortcut."""
    samples = bench.samples
    if not samples.attributes:
        raise UsageError(
            f"study symmetry: {samples.source} needs attribute columns, to know which samples "
            "have a shortcut"
        )
    (spec,) = with_shared([ERM], ranker_settings(bench), ranker_class)
    rows = [curve(bench, "symmetry", spec, s, _losses) for s in range(bench.options.seeds)]
    groups = [name for name in shortcut_groups(samples) if name in rows[0]["curve"][0]]
    return Study([_table(bench, rows, groups)], _draw(bench, rows, groups))


def shortcut_groups(samples: Samples) -> dict[str, npt.NDArray[np.bool_]]:
    """Training samples by the shortcuts they have, from all to none; empty groups are left out."""
    train = samples.rows("train")
    names, aligned = alignment(samples)
    aligned, known = aligned[train], known_attributes(samples)[train]
    out = {"with every shortcut" if len(names) > 1 else f"with {names[0]}": aligned.all(1)}
    if len(names) > 1:
        for k, name in enumerate(names):
            out[f"only {name}"] = aligned[:, k] & (aligned.sum(1) == 1)
    out["without" if len(names) == 1 else "with none"] = ~aligned.any(1)
    kept = {name: members & known for name, members in out.items()}
    return {name: members for name, members in kept.items() if members.any()}


def _losses(prepared: Prepared) -> Look:
    task = prepared.rank_task()
    groups = shortcut_groups(prepared.samples)
    everyone = torch.arange(len(task), device=task.device)

    def look(network: Any) -> Mapping[str, float]:
        p = label_probability(network, task, everyone).double().cpu().numpy()
        loss = -np.log(np.maximum(p, LEAST_P))
        return {name: float(loss[members].mean()) for name, members in groups.items()}

    return look


def _table(bench: Workbench, rows: Sequence[Row], groups: Sequence[str]) -> Table:
    table = Table(f"{bench.name}: training loss of ERM by shortcut")
    sizes = {name: int(m.sum()) for name, m in shortcut_groups(bench.samples).items()}
    for name in groups:
        lead = {"samples": name, "number": str(sizes[name])}
        table.shown.append({**lead, **at_epochs(rows, name, shown_epochs(rows), digits=3)})
    table.figures = [{"seed": row["seed"], **point} for row in rows for point in row["curve"]]
    table.remarks.append("mean cross-entropy after the epoch, over all training samples of a kind")
    return table


def _draw(bench: Workbench, rows: Sequence[Row], groups: Sequence[str]) -> list[Path]:
    figure, axes = new_figure(6, 3.6)
    for k, name in enumerate(groups):
        style, marker, grey = LINES[k % len(LINES)]
        epochs, mean, deviation = over_seeds(rows, name, step=1.0)
        axes.plot(
            epochs,
            mean,
            linestyle=style,
            marker=marker,
            markevery=max(1, len(epochs) // 10),
            markersize=4,
            color=grey,
            label=name,
        )
        axes.fill_between(
            epochs, mean - deviation, mean + deviation, color=grey, alpha=0.15, linewidth=0
        )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epochs of plain training (ERM)")
    axes.set_ylabel("mean training loss")
    axes.legend(frameon=False, fontsize="small", title="samples")
    return save_figure(figure, bench, "symmetry")
