"""The first paragraph: is there a shortcut, how strong, which classes, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from sebra.showing.facts import Bias, Cue
from sebra.showing.picking import SUSPECT
from sebra.showing.ranked import Ranked
from sebra.showing.words import count, figure, listed, mean, name, percent

Level = Literal["strong", "some", "weak", "unknown"]
STRONG, SOME = 0.5, 0.2  # strength of a cue
COSTLY = 15.0  # points between the I.D. accuracy and the worst group
FOUND, PARTLY = 0.5, 0.2  # Somers' D of the ranking


@dataclass
class Step:
    """Something to do next, with the command for it where there is one."""

    text: Markup
    command: str = ""


@dataclass
class Summary:
    """What a person who reads one screen should take away."""

    level: Level
    headline: Markup
    findings: list[Markup] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def summarise(
    ranked: Ranked,
    cues: Sequence[Cue],
    biases: Sequence[Bias],
    metrics: Mapping[str, Any],
    comparisons: Sequence[Mapping[str, Any]],
    data: str,
    run: str,
) -> Summary:
    """Says what the figures support and no more; `data` and `run` are ready for a shell."""
    summary = _verdict(cues, biases)
    summary.findings += _quality(metrics.get("ranking", {}))
    summary.findings += _models(metrics, comparisons)
    summary.findings += _suspects(ranked)
    summary.steps = _steps(ranked, summary.level, data, run or "RUN")
    return summary


def _verdict(cues: Sequence[Cue], biases: Sequence[Bias]) -> Summary:
    if cues:
        return _from_cues(cues)
    if biases:
        return _from_biases(biases)
    return Summary(
        "unknown",
        Markup("Whether there is a shortcut is not measured here: look at the galleries"),
        [
            Markup(
                "The data has no attribute columns and the ranking found no separate biases, so "
                "no figure can say whether a shortcut exists. The ranking still orders each class: "
                "if the most spurious samples share something the class is not about (a place, a "
                "colour, an object beside it) and the least spurious lack it, that is the shortcut."
            )
        ],
    )


def _from_cues(cues: Sequence[Cue]) -> Summary:
    best = max(cues, key=lambda cue: cue.strength)
    level: Level = (
        "strong" if best.strength >= STRONG else "some" if best.strength >= SOME else "weak"
    )
    headline = {
        "strong": Markup("A strong shortcut: {} nearly gives the class away"),
        "some": Markup("A shortcut: {} helps to guess the class"),
        "weak": Markup("No strong shortcut among the known attributes ({} is the strongest)"),
        "unknown": Markup("{}"),
    }[level].format(name(best.name))
    findings = [
        Markup(
            "<b>{}</b> alone tells the class of {} of the training samples; always naming the "
            "largest class gets {}."
        ).format(name(cue.name), percent(cue.accuracy), percent(cue.baseline))
        for cue in sorted(cues, key=lambda cue: -cue.strength)[:4]
    ]
    strong = sorted(best.shares, key=lambda c: -best.shares[c])
    if level != "weak" and strong:
        parts = [Markup("{} ({})").format(name(c, 40), percent(best.shares[c])) for c in strong]
        findings.append(
            Markup("Share of each class that shows its usual {}: {}.").format(
                name(best.name), listed(parts, 6)
            )
        )
    return Summary(level, headline, findings)


def _from_biases(biases: Sequence[Bias]) -> Summary:
    first = biases[0]
    level: Level = "strong" if first.follows >= 0.8 else "some"
    many = f"{len(biases)} possible shortcuts" if len(biases) > 1 else "One possible shortcut"
    findings = [
        Markup(
            "Bias {}: {} of the samples follow it; a network that saw little else got their class "
            "right. Strongest in {}."
        ).format(bias.number, percent(bias.follows), _strongest(bias.per_class))
        for bias in biases[:4]
    ]
    findings.append(
        Markup(
            "The data has no attribute columns, so whether these are shortcuts or simply the easy "
            "part of each class is for a person to judge: compare the two sides of each gallery."
        )
    )
    return Summary(level, Markup("{} to look at").format(many), findings)


def _strongest(per_class: Mapping[str, float]) -> Markup:
    order = sorted(per_class, key=lambda c: -per_class[c])[:3]
    return listed([Markup("{} ({})").format(name(c, 40), percent(per_class[c])) for c in order])


def _quality(ranking: Mapping[str, Any]) -> list[Markup]:
    out = []
    d = mean(ranking.get("somers_d"))
    if d is not None:
        said = "follows" if d >= FOUND else "partly follows" if d >= PARTLY else "does not follow"
        out.append(
            Markup(
                "The ranking {} the known attributes: Somers’ D {} (1 is perfect, 0 is chance)."
            ).format(said, figure(ranking["somers_d"], 2))
        )
    out += _trust(ranking.get("trust"))
    share = mean(ranking.get("largest_bucket_share"))
    if share is not None and share > 0.5:
        out.append(
            Markup(
                "One round swallowed {} of the samples; inside it the order rests on the "
                "network’s confidence alone, so read it with care."
            ).format(percent(share))
        )
    return out


def _trust(trust: Any) -> list[Markup]:
    if isinstance(trust, Mapping) and "mean" not in trust:
        said = ", ".join(f"{key.replace('_', ' ')} {figure(v, 2)}" for key, v in trust.items())
        return [Markup("How far the ranking can be trusted: {}.").format(said)] if said else []
    if trust is None:
        return []
    return [Markup("How far the ranking can be trusted: {}.").format(figure(trust, 2))]


def _models(metrics: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Each model's worst group against its accuracy on data like the training split."""
    named = [(c.get("name", "model"), c.get("evaluation", {})) for c in comparisons]
    if not named and metrics.get("evaluation"):
        named = [("the model", metrics["evaluation"])]
    out = []
    for label, evaluation in named[:6]:
        inside, worst = mean(evaluation.get("id_accuracy")), mean(evaluation.get("worst_group"))
        if inside is None or worst is None:
            continue
        cost = "pays for the shortcut" if inside - worst >= COSTLY else "hardly needs it"
        where = evaluation.get("worst_group_name")
        place = Markup(" ({})").format(name(where)) if isinstance(where, str) else Markup("")
        out.append(
            Markup(
                "<b>{}</b> {}: {} % right on data like the training data, {} % in its worst "
                "group{}."
            ).format(
                name(label),
                cost,
                figure(evaluation["id_accuracy"]),
                figure(evaluation["worst_group"]),
                place,
            )
        )
    return out


def _suspects(ranked: Ranked) -> list[Markup]:
    if ranked.noise is None:
        return []
    n = int(np.count_nonzero(ranked.noise >= SUSPECT))
    if not n:
        return [Markup("No sample stands out as mislabelled.")]
    return [
        Markup("{} samples ({}) look mislabelled or out of place.").format(
            count(n), percent(n / len(ranked))
        )
    ]


def _steps(ranked: Ranked, level: Level, data: str, run: str) -> list[Step]:
    steps = [
        Step(
            Markup(
                "Look at the least spurious samples of each class: they show what a model must get "
                "right without the shortcut. Collect more like them if you can."
            )
        )
    ]
    if not ranked.stages:
        steps.append(
            Step(
                Markup("Find out how many biases there are and tell them apart."),
                f"sebra audit {data} --method peel",
            )
        )
    if level != "weak":
        steps.append(
            Step(
                Markup("Train a model that does not need the shortcut, from this ranking."),
                f"sebra debias {data} --ranking {run}",
            )
        )
    steps.append(
        Step(
            Markup("Mark wrong or unwanted samples below, export them and leave them out."),
            f"sebra rank {data} --exclude marks.csv",
        )
    )
    return steps
