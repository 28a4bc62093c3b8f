"""How well wrong labels are found, and what removing them gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra.debiasing.erm import Erm
from sebra.debiasing.method import Help
from sebra.debiasing.registry import method_class
from sebra.debiasing.selection import Selector
from sebra.engine.session import Session
from sebra.engine.step import label_probability
from sebra.engine.task import Task
from sebra.measuring.groups import score
from sebra.ranking.noise import estimate_noise
from sebra.ranking.ranking import Blind, Ranking
from sebra.ranking.registry import ranker_class
from sebra.workflows.history import predicted_classes
from sebra.workflows.needs import guide_of
from sebra.workflows.prepared import Prepared
from sebra_bench.label_noise import KINDS, inject_noise
from sebra_bench.plan import Spec, with_shared
from sebra_bench.seeds import mean_std, seeded
from sebra_bench.studies.common import (
    GREYS,
    HATCHES,
    Study,
    new_figure,
    save_figure,
)
from sebra_bench.tables import Table, cell
from sebra_bench.workbench import Workbench

Array = npt.NDArray[Any]
SHARES = (0.1, 0.2)
_TRAINED = (Spec("erm", "erm"), Spec("sebra", "sebra"))
LEAST_LOST = 1.0  # points, below which there is nothing to recover
FINDERS = {
    "noise": "noise column",
    "erm_loss": "loss of ERM",
    "tail": "tail of the ranking",
}
ACCURACIES = {
    "clean": "labels as they are",
    "noisy": "with wrong labels",
    "cleaned": "without the flagged",
}


def noise(bench: Workbench) -> Study:
    """Average precision of three ways to find wrong labels, and ERM's accuracy after removal."""
    _with_settings(bench)  # wrong ones are refused before the work
    found: list[tuple[str, float, dict[str, Any]]] = []
    clean = [_accuracy(bench, seeded(bench.prepared, seed)) for seed in _seeds(bench)]
    for kind in _kinds(bench):
        for share in SHARES:
            runs = [_one(bench, kind, share, seed, clean[seed]) for seed in _seeds(bench)]
            found.append((kind, share, mean_std(runs)))
            bench.progress.message(f"{bench.name}: {kind} {share:.0%} done")
    tables = [_finding_table(bench, found)]
    if clean[0] is not None:
        tables.append(_recovery_table(bench, found))
    metrics = {"noise": [{"kind": k, "share": s, **figures} for k, s, figures in found]}
    return Study(tables, _draw(bench, found), metrics)


def _seeds(bench: Workbench) -> range:
    return range(bench.options.seeds)


def _kinds(bench: Workbench) -> Sequence[str]:
    """With two classes the pair is all there is."""
    return KINDS if len(bench.samples.classes) > 2 else KINDS[:1]


def _one(
    bench: Workbench, kind: str, share: float, seed: int, clean: dict[str, float] | None
) -> dict[str, Any]:
    prepared, wrong = _with_noise(seeded(bench.prepared, seed), kind, share, seed)
    task = prepared.task("train")
    estimate = estimate_noise(task)
    network = _fit(bench, task)
    p = label_probability(network, task, torch.arange(len(task), device=task.device))
    scores = {
        "noise": estimate.noise,
        "erm_loss": 1 - p.cpu().numpy(),
        "tail": _tail(bench, prepared),
    }
    flagged = estimate.flagged
    out: dict[str, Any] = {
        "average_precision": {name: _precision(wrong, values) for name, values in scores.items()},
        "base_rate": float(wrong.mean()),
        "flagged": int(flagged.sum()),
        "precision": float(wrong[flagged].mean()) if flagged.any() else 0.0,
        "recall": float(flagged[wrong].mean()),
    }
    if clean is not None:
        noisy = _accuracy(bench, prepared)
        keep = torch.from_numpy(np.flatnonzero(~flagged)).to(task.device)
        cleaned = _accuracy(bench, prepared, keep)
        out["accuracy"] = {"clean": clean, "noisy": noisy, "cleaned": cleaned}
    return out


def _with_noise(
    prepared: Prepared, kind: str, share: float, seed: int
) -> tuple[Prepared, npt.NDArray[np.bool_]]:
    """The same data set with wrong training labels; what lies on the device is shared."""
    samples, changed = inject_noise(prepared.samples, share, kind, seed)
    train = samples.rows("train")
    part, inputs = prepared.split("train")
    splits = {**prepared._splits, "train": (replace(part, labels=samples.labels[train]), inputs)}
    return replace(prepared, samples=samples, _splits=splits), changed[train]


def _tail(bench: Workbench, prepared: Prepared) -> Array:
    """How near to the tail of Sebra's ranking a sample is."""
    out: Array = 1 - _ranked(bench, prepared.rank_task()).table["spuriosity"].to_numpy()
    return out


def _with_settings(bench: Workbench) -> tuple[Spec, ...]:
    """ERM and Sebra, with what `--set` gives methods."""
    return with_shared(_TRAINED, bench.options.method_overrides, method_class)


def _last_epoch() -> Selector:
    """No selection: right labels to validate with would hide what wrong ones cost."""
    return Selector(None, "last epoch")


def _fit(bench: Workbench, task: Task) -> Any:
    """ERM to its last epoch."""
    config: Any = bench.method_config(_with_settings(bench)[0])
    return Erm(config).fit(task, Help(_last_epoch()), Session())


def _accuracy(
    bench: Workbench, prepared: Prepared, keep: torch.Tensor | None = None
) -> dict[str, float] | None:
    """Accuracy of ERM and of the debiased model on the test split; None where there is none."""
    rows = prepared.samples.rows("test")
    if not len(rows):
        return None
    task, seen = prepared.task("train"), prepared.rank_task()
    if keep is not None:
        task, seen = task.subset(keep), seen.subset(keep)
    samples = bench.samples  # groups weigh as much as they do among the right labels
    out = {}
    for name, network in (("erm", _fit(bench, task)), ("sebra", _debiased(bench, task, seen))):
        predicted = predicted_classes(network, prepared.task("test"))
        out[name] = 100 * float(np.mean(predicted == samples.labels[rows]))
        if samples.attributes:
            found = score(samples, rows, predicted, bench.options.min_group)
            out[f"{name}, I.D."] = float(found.to_dict()["id_accuracy"])
    return out


def _debiased(bench: Workbench, task: Task, seen: Task) -> Any:
    """Ranks the task as rankers see it (`seen`) and trains on that ranking, to the last epoch."""
    spec = _with_settings(bench)[1]
    config: Any = bench.method_config(spec)
    ranking = _ranked(bench, seen)
    if config.weighs_noise:
        ranking.table["noise"] = estimate_noise(task).noise
    guide = guide_of(ranking, task.device)
    return method_class(spec.name)(config).fit(task, Help(_last_epoch(), guide), Session())


def _ranked(bench: Workbench, task: Task) -> Ranking:
    (spec,) = with_shared([Spec("sebra", "sebra")], bench.options.ranker_overrides, ranker_class)
    ranker = ranker_class(spec.name)(bench.ranker_config(spec))
    places = np.arange(len(task)).astype(str)
    return Ranking.from_result(
        ranker.rank(task, Session(), Blind()),
        places,
        task.targets.cpu().numpy(),
        bench.samples.classes,
    )


def _precision(wrong: Array, score: Array) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(wrong, score))


def _finding_table(bench: Workbench, found: Sequence[tuple[str, float, dict[str, Any]]]) -> Table:
    table = Table(f"{bench.name}: average precision of finding wrong labels")
    for kind, share, figures in found:
        precision = figures["average_precision"]
        shown = {"noise": f"{kind}, {share:.0%}"}
        shown |= {title: cell(precision[name], None, 2) for name, title in FINDERS.items()}
        shown |= {
            "flagged: precision": cell(figures["precision"], None, 2),
            "flagged: recall": cell(figures["recall"], None, 2),
        }
        table.shown.append(shown)
        table.figures.append({"kind": kind, "share": share, **precision})
    table.remarks.append("chance is the share of wrong labels; flagged: noise of at least 0.5")
    return table


def _recovery_table(bench: Workbench, found: Sequence[tuple[str, float, dict[str, Any]]]) -> Table:
    table = Table(f"{bench.name}: accuracy on the test split, in percent")
    for kind, share, figures in found:
        for method in figures["accuracy"]["clean"]:
            accuracy = {name: figures["accuracy"][name][method] for name in ACCURACIES}
            mean = {name: value["mean"] for name, value in accuracy.items()}
            lost = mean["clean"] - mean["noisy"]
            back = (mean["cleaned"] - mean["noisy"]) / lost if lost > LEAST_LOST else None
            shown = {"noise": f"{kind}, {share:.0%}", "model": method}
            shown |= {title: cell(accuracy[name], None, 1) for name, title in ACCURACIES.items()}
            shown["recovered"] = "–" if back is None else f"{back:.0%}"
            table.shown.append(shown)
            table.figures.append(
                {"kind": kind, "share": share, "model": method, **accuracy, "recovered": back}
            )
    table.remarks.append(
        "recovered: of the accuracy lost to wrong labels, by removing the flagged; a dash where "
        "less than a point was lost; I.D.: groups weigh as in training, else as in the test split"
    )
    return table


def _draw(bench: Workbench, found: Sequence[tuple[str, float, dict[str, Any]]]) -> list[Path]:
    figure, axes = new_figure(6, 3.4)
    width = 0.8 / len(FINDERS)
    for m, (name, title) in enumerate(FINDERS.items()):
        values = [figures["average_precision"][name] for _, _, figures in found]
        axes.bar(
            [i + (m - 1) * width for i in range(len(found))],
            [v["mean"] for v in values],
            width,
            yerr=[v["std"] for v in values],
            capsize=2,
            color=GREYS[m],
            edgecolor="black",
            hatch=HATCHES[m],
            label=title,
        )
    axes.set_xticks(range(len(found)), [f"{kind}\n{share:.0%}" for kind, share, _ in found])
    axes.set_ylabel("average precision")
    axes.set_ylim(0, 1.25)
    axes.legend(frameon=False, fontsize="small", ncols=3, loc="upper center")
    return save_figure(figure, bench, "noise")
