"""The section for data with attributes: who is in which group, and how models fare there."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from sebra.measuring.scores import worst_shown
from sebra.showing import charts, facts
from sebra.showing.ranked import Ranked
from sebra.showing.report import ReportInput
from sebra.showing.words import figure, mean

MOST_GROUPS = 200
MOST_CHART_GROUPS = 24


def group_context(run: ReportInput, ranked: Ranked, cues: list[facts.Cue]) -> dict[str, Any]:
    """Cues, composition along the rank, and the comparison of models; empty where unknown."""
    models = [
        (str(c.get("name", "model")), c["evaluation"])
        for c in run.comparisons
        if c.get("evaluation")
    ]
    if not models and run.metrics.get("evaluation"):
        models = [("model", run.metrics["evaluation"])]
    along = facts.aligned_along_rank(ranked)
    return {
        "cues": cues,
        "along": charts.along_rank(along, "c-along") if along else Markup(""),
        "models": [label for label, _ in models],
        "figures": _figures(models),
        "groups": _groups(models),
        "chart": _chart(models),
        "training": _training_groups(ranked),
    }


def _figures(models: list[tuple[str, Any]]) -> list[tuple[str, list[str]]]:
    """Rows of the comparison table: figure, then its value for each model."""
    rows: list[tuple[str, list[str]]] = []

    def row(label: str, values: list[Any]) -> None:
        if any(mean(v) is not None for v in values):
            rows.append((label, [figure(v) for v in values]))

    evaluations = [evaluation for _, evaluation in models]
    row("I.D. accuracy", [e.get("id_accuracy") if e.get("gaps") else None for e in evaluations])
    gaps = dict.fromkeys(gap for e in evaluations for gap in e.get("gaps", {}))
    for gap in gaps:
        row(f"{gap} gap", [e.get("gaps", {}).get(gap) for e in evaluations])
    row("average gap", [e.get("average_gap") for e in evaluations])
    if any(e.get("worst_group_range") for e in evaluations):
        rows.append(("worst group", [str(worst_shown(e)) for e in evaluations]))
    else:
        row("worst group", [e.get("worst_group") for e in evaluations])
    row("average over samples", [e.get("average") for e in evaluations])
    row("average over groups", [e.get("balanced_average") for e in evaluations])
    cues = dict.fromkeys(c for e in evaluations for c in e.get("cues", {}))
    for cue in cues if len(cues) > 1 else ():  # the label alone is the accuracy once more
        shown = "agrees with the label" if cue == "label" else f"agrees with {cue}"
        row(shown, [e.get("cues", {}).get(cue) for e in evaluations])
    return rows


def _groups(models: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """One row per test group over all models, the worst of the first model first."""
    found: dict[str, dict[str, Any]] = {}
    for k, (_, evaluation) in enumerate(models):
        for group in evaluation.get("groups", []):
            row = found.setdefault(
                str(group["name"]), {**group, "accuracies": [None] * len(models)}
            )
            row["accuracies"][k] = group.get("accuracy")
    rows = sorted(found.values(), key=lambda g: _first(g["accuracies"]))
    for row in rows:
        row["shown"] = [figure(a) for a in row["accuracies"]]
    return rows[:MOST_GROUPS]


def _first(accuracies: list[Any]) -> float:
    return next((m for a in accuracies if (m := mean(a)) is not None), 101.0)


def _chart(models: list[tuple[str, Any]]) -> Markup:
    groups = _groups(models)[:MOST_CHART_GROUPS]
    if not groups or not models:
        return Markup("")
    accuracies = {
        label: [_number(g["accuracies"][k]) for g in groups] for k, (label, _) in enumerate(models)
    }
    return charts.compared([str(g["name"]) for g in groups], accuracies, "c-groups")


def _number(value: Any) -> float:
    known = mean(value)
    return float("nan") if known is None else known


def _training_groups(ranked: Ranked) -> list[dict[str, Any]]:
    """Groups of the ranked samples by what is aligned, with where the ranking put them."""
    if not ranked.samples.attributes or not len(ranked):
        return []
    _, aligned, known = ranked.aligned()
    sizes = np.array([max(2, len(order)) for order in ranked.orders])
    place = 100 * ranked.rank / (sizes[ranked.labels] - 1)
    found, group = np.unique(aligned[known], axis=0, return_inverse=True)
    rows = []
    for g in reversed(range(len(found))):
        members = place[known][group.reshape(-1) == g]
        rows.append(
            {
                "aligned": [bool(v) for v in found[g]],
                "n": len(members),
                "place": float(np.median(members)),
            }
        )
    return rows[:MOST_GROUPS]
