"""Which cue the network follows while it learns: Sebra's ranking against ERM (a paper's figure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from sebra.errors import UsageError
from sebra.measuring.groups import score
from sebra.ranking.registry import ranker_class
from sebra.workflows.history import predicted_classes
from sebra.workflows.prepared import Prepared
from sebra_bench.plan import Spec, with_shared
from sebra_bench.rows import Row
from sebra_bench.studies.common import Study, ranker_settings, save_figure
from sebra_bench.studies.curves import Look, at_epochs, curve, over_seeds, shown_epochs
from sebra_bench.tables import Table
from sebra_bench.workbench import Workbench

SPECS = (Spec("sebra", "sebra"), Spec("erm", "erm"))
STYLES = {"sebra": ("Sebra", "-", "o", "0.0"), "erm": ("ERM", "--", "s", "0.45")}
WATCHED = "val"
CORE = "label"
LEAST_SHOWN = 8  # epochs of ERM in the figure, however soon Sebra has learned everything


def dynamics(bench: Workbench) -> Study:
    """Accuracy of every cue on the validation split, epoch by epoch, of Sebra and of ERM."""
    samples = bench.samples
    if not samples.attributes or not len(samples.rows(WATCHED)):
        raise UsageError(
            f"study dynamics: {samples.source} needs attribute columns and a {WATCHED} split, to "
            "measure which cue the network follows"
        )
    specs = with_shared(SPECS, ranker_settings(bench), ranker_class)
    found: dict[str, list[Row]] = {spec.label: [] for spec in specs}
    for seed in range(bench.options.seeds):
        for spec in specs:
            found[spec.label].append(curve(bench, "dynamics", spec, seed, _cues))
    cues = [*samples.attributes, CORE]
    return Study([_table(bench, found, cues)], _draw(bench, found, cues))


def _cues(prepared: Prepared) -> Look:
    task, samples = prepared.rank_task(name=WATCHED), prepared.samples
    rows = samples.rows(WATCHED)

    def look(network: torch.nn.Module) -> Mapping[str, float]:
        return dict(score(samples, rows, predicted_classes(network, task)).cues)

    return look


def _table(bench: Workbench, found: Mapping[str, Sequence[Row]], cues: Sequence[str]) -> Table:
    """To read: the means at some epochs; as figures: every point of every curve."""
    table = Table(f"{bench.name}: cue accuracies in percent while training")
    epochs = shown_epochs([row for rows in found.values() for row in rows])
    for label, rows in found.items():
        for cue in cues:
            lead = {"training": STYLES[label][0], "cue": _title(cue)}
            table.shown.append({**lead, **at_epochs(rows, cue, epochs, digits=1)})
        table.figures += [
            {"training": label, "seed": row["seed"], **point}
            for row in rows
            for point in row["curve"]
        ]
    table.remarks.append(
        "a prediction counts for a cue where it is the class that the cue goes with; measured on "
        f"the {WATCHED} split; a dash: before the first round, "
        "or after Sebra had learned every sample"
    )
    return table


def _title(cue: str) -> str:
    return "the class itself" if cue == CORE else cue


def _draw(bench: Workbench, found: Mapping[str, Sequence[Row]], cues: Sequence[str]) -> list[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * len(cues), 3.2), layout="constrained")
    panels = figure.subplots(1, len(cues), sharey=True, squeeze=False)[0]
    ends = {label: min(row["curve"][-1]["epoch"] for row in rows) for label, rows in found.items()}
    end = max(ends["sebra"], min(LEAST_SHOWN, ends["erm"]))
    for axes, cue in zip(panels, cues, strict=True):
        for label, rows in found.items():
            title, style, marker, grey = STYLES[label]
            epochs, mean, deviation = over_seeds(rows, cue)
            axes.plot(
                epochs,
                mean,
                linestyle=style,
                marker=marker,
                markevery=max(1, sum(epochs <= end) // 8),
                markersize=4,
                color=grey,
                label=title,
            )
            low, high = (mean - deviation).clip(0, 100), (mean + deviation).clip(0, 100)
            axes.fill_between(epochs, low, high, color=grey, alpha=0.15, linewidth=0)
        axes.axhline(100 / max(1, len(bench.samples.classes)), color="0.7", linewidth=0.8)
        axes.set_title(_title(cue), fontsize="medium")
        axes.set_xlabel("epochs of training")
        axes.set_xlim(0, end * 1.03)
        axes.set_ylim(0, 104)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"cue accuracy on {WATCHED} (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=2, loc="outside upper center")
    return save_figure(figure, bench, "dynamics")
