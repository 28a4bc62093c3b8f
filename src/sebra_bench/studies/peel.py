"""What peeling does differently: shortcuts stage by stage, and the reversal it avoids.

The faithful method takes learned samples away; in what is left the first shortcut predicts the
opposite class, so its reverse is learned next and the second shortcut never gets its turn. The
model of a stage learns the class with the earlier shortcuts in balance, so it goes for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra.engine.step import label_probability
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.measuring.ranks import column_d
from sebra.ranking.balance import neutral_weights
from sebra.ranking.candidate import margins
from sebra.ranking.crossfit import HeadJudge, NetworkJudge
from sebra.ranking.peel import PeelConfig
from sebra.ranking.ranking import Blind
from sebra.ranking.registry import ranker_class
from sebra.samples.table import alignment
from sebra.workflows.prepared import Prepared
from sebra_bench.plan import Spec, with_shared
from sebra_bench.rows import Row
from sebra_bench.studies.common import (
    LINES,
    Study,
    ranker_settings,
    require_true_groups,
    save_figure,
)
from sebra_bench.studies.curves import (
    Look,
    Watched,
    at_epochs,
    curve,
    has_curve,
    over_seeds,
    recorded,
    shown_epochs,
)
from sebra_bench.tables import ABSENT, Table
from sebra_bench.workbench import Workbench

PEEL = Spec("peel", "peel")
# As published: whole epochs, and enough of them for what follows once the first shortcut is gone.
FAITHFUL = Spec("sebra", "sebra", ("resolution=epoch", "epochs=50"))


LOOKS = (1, 2, 3, 5, 8, 12, 20, 30, 40)  # how far a head is from its last; of networks, as many

Measure = Callable[[npt.NDArray[Any]], Mapping[str, float]]


def peel(bench: Workbench) -> Study:
    """Alignment with every attribute, epoch by epoch: of peel's stages and the faithful method."""
    names = list(bench.samples.attributes)
    if not names:
        raise UsageError(
            f"study peel: {bench.samples.source} has no attribute columns, so the alignment of "
            "stages cannot be measured"
        )
    require_true_groups(bench, "peel")
    peeled, faithful = with_shared((PEEL, FAITHFUL), ranker_settings(bench), ranker_class)
    stages: list[Row] = []
    trails: list[Row] = []
    curves: list[Row] = []
    for seed in range(bench.options.seeds):
        stages.append(bench.ranking(peeled, seed))
        trails.append(recorded(bench, "peel", peeled, seed, _trail))
        curves.append(curve(bench, "peel", faithful, seed, _alignments))
    found = stage_means(stages, names)
    ways = by_stage(trails)
    tables = [
        _stage_table(bench, stages, found, names),
        _trail_table(bench, trails, ways, len(found), names),
        _curve_table(bench, curves, names),
    ]
    metrics = {"peel": {"stages": found, "somers_d": _mean_d(stages)}}
    return Study(tables, _draw(bench, found, ways, curves, names), metrics)


def _trail(prepared: Prepared, ranker: Any, session: Watched) -> list[dict[str, float]]:
    """What the first model of every stage goes by while it trains, the refused one among them."""
    measure, task = _measure(prepared), prepared.rank_task(ranker)
    found = ranker.rank(task, session, Blind())
    columns = [share > 0.5 for share in (found.stages or {}).values()]
    follows = np.array(columns, bool).reshape(-1, len(task)).T
    points: list[dict[str, float]] = []
    for stage in range(1, min(len(columns) + 1, ranker.config.stages) + 1):
        for epochs, margin in _way(task, session, ranker.config, follows[:, : stage - 1]):
            points.append({"stage": stage, "epoch": epochs, **measure(margin)})
    return points


def _way(
    task: Task, session: Watched, config: PeelConfig, before: npt.NDArray[np.bool_]
) -> Iterator[tuple[float, npt.NDArray[Any]]]:
    """Epochs of training and held-out margins then, of the model for which `before` is neutral."""
    labels = task.targets.cpu()
    everyone = np.ones(len(task))
    weights = torch.from_numpy(neutral_weights(before, labels.numpy(), everyone))
    for epochs, judge in shorter(task, session, config):
        logits = judge.tell_class(labels, weights).double().numpy()
        yield epochs, margins(logits, labels.numpy())


def shorter(
    task: Task, session: Watched, config: PeelConfig
) -> Iterator[tuple[float, HeadJudge | NetworkJudge]]:
    """The judges of peeling after ever longer training, the last one as long as it takes."""
    if task.inputs.is_image or task.inputs.is_text:
        epoch = NetworkJudge(task, session, config).epoch
        every = max(1, round(epoch), config.steps // len(LOOKS))
        for steps in (*range(every, config.steps, every), config.steps):
            yield steps / epoch, NetworkJudge(task, session, replace(config, steps=steps))
    else:
        judge = HeadJudge(task, (config.penalty, config.penalty_contrast))
        for look in LOOKS:  # a weaker penalty is to a head what longer training is to a network
            judge.penalties = config.penalty * LOOKS[-1] / look, config.penalty_contrast
            yield look, judge


def _alignments(prepared: Prepared) -> Look:
    """What a network goes by, from p_y over the training samples."""
    task, measure = prepared.rank_task(), _measure(prepared)
    everyone = torch.arange(len(task), device=task.device)
    return lambda network: measure(label_probability(network, task, everyone).cpu().numpy())


def _measure(prepared: Prepared) -> Measure:
    """Somers' D of values of the training samples given each attribute, class-wise.

    Above zero they are larger for aligned samples; below, the reverse was learned.
    """
    samples = prepared.samples
    rows = samples.rows("train")
    names, aligned = alignment(samples)
    labels = samples.labels[rows]
    known = [a.codes[rows] >= 0 for a in samples.attributes.values()]

    def measure(values: npt.NDArray[Any]) -> Mapping[str, float]:
        found = {
            n: column_d(values[here], aligned[rows, k][here], labels[here])
            for k, (n, here) in enumerate(zip(names, known, strict=True))
        }
        return {n: d for n, d in found.items() if d is not None}

    return measure


def by_stage(trails: Sequence[Row]) -> list[list[Row]]:
    """Per stage the curves of the seeds that tried it."""
    most = max((int(p["stage"]) for row in trails for p in row["curve"]), default=0)
    out = []
    for k in range(1, most + 1):
        curves = [[p for p in row["curve"] if p["stage"] == k] for row in trails]
        out.append([{"curve": points} for points in curves if points])
    return out


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


def _trail_table(
    bench: Workbench,
    trails: Sequence[Row],
    ways: Sequence[Sequence[Row]],
    stood: int,
    names: Sequence[str],
) -> Table:
    table = Table(f"{bench.name}: alignment of the model of each stage, epoch by epoch")
    epochs = shown_epochs([row for way in ways for row in way])
    for k, way in enumerate(ways, 1):
        title = f"stage {k}" if k <= stood else f"stage {k}, refused"
        for name in names:
            cells = at_epochs(way, name, epochs, digits=2)
            table.shown.append({"stage": title, "attribute": name, **cells})
    table.figures = [{"seed": row["seed"], **point} for row in trails for point in row["curve"]]
    table.remarks.append(
        "class-wise Somers' D, given the attribute, of the margin that held-out samples get from "
        "the model that learns the class with the earlier stages in balance; over frozen features "
        "an epoch is a pass of the head's optimiser; all labels are taken as right"
    )
    return table


def _curve_table(bench: Workbench, rows: Sequence[Row], names: Sequence[str]) -> Table:
    table = Table(f"{bench.name}: alignment of the faithful method, epoch by epoch")
    epochs = shown_epochs(rows)
    for name in names:
        values = [p[name] for row in rows for p in row["curve"] if name in p]
        lowest = f"{min(values):.2f}" if values else ABSENT
        cells = at_epochs(rows, name, epochs, digits=2)
        table.shown.append({"attribute": name, **cells, "lowest": lowest})
    table.figures = [{"seed": row["seed"], **point} for row in rows for point in row["curve"]]
    table.remarks.append(
        "class-wise Somers' D of p_y over all training samples given the attribute: below zero "
        "the network goes by the reverse of the shortcut; means end where the first seed has "
        "learned every sample, lowest is of any seed and epoch"
    )
    return table


def _draw(
    bench: Workbench,
    found: Sequence[dict[str, Any]],
    ways: Sequence[Sequence[Row]],
    curves: Sequence[Row],
    names: Sequence[str],
) -> list[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.6 * (len(ways) + 1), 3.4), layout="constrained")
    panels = figure.subplots(1, len(ways) + 1, sharey=True, squeeze=False)[0]
    for k, way in enumerate(ways):
        stood = k < len(found)
        panels[k].set_title(f"peel, stage {k + 1}" + ("" if stood else " (refused)"), fontsize=10)
        _lines(panels[k], way, names)
        for m, name in enumerate(names):
            end = found[k]["given"][name] if stood else None
            if end is not None:
                panels[k].plot(
                    1.04,
                    end,
                    marker="<",
                    markersize=6,
                    linestyle="",
                    color=LINES[m % len(LINES)][2],
                    transform=panels[k].get_yaxis_transform(),
                    clip_on=False,
                )
                panels[k].set_xlabel("epoch; ◄ the column")
    panels[-1].set_title("the faithful method", fontsize=10)
    _lines(panels[-1], curves, names)
    panels[0].legend(frameon=False, fontsize="small", loc="lower left")
    panels[0].set_ylabel("alignment with the attribute\n(class-wise Somers' D)")
    return save_figure(figure, bench, "peel")


def _lines(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    for m, name in enumerate(names):
        if not has_curve(rows, name):
            continue
        epochs, mean, _ = over_seeds(rows, name)
        style, marker, colour = LINES[m % len(LINES)]
        for row in rows:  # each seed to its own end
            points = [(p["epoch"], p[name]) for p in row["curve"] if name in p]
            axes.plot(*zip(*points, strict=True), linestyle=style, linewidth=0.6, color=colour)
        every = max(1, len(epochs) // 6)
        axes.plot(
            epochs,
            mean,
            linestyle=style,
            marker=marker,
            markevery=every,
            markersize=4,
            color=colour,
            label=name,
        )
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_ylim(-1.05, 1.05)
    axes.set_xlabel("epoch")
    axes.spines[["top", "right"]].set_visible(False)
