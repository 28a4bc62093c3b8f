"""The first screen: is there a shortcut, how strong, where, what does it cost, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from sebra.showing.facts import Bias, Cue
from sebra.showing.findings import rests, sentence
from sebra.showing.picking import SUSPECT
from sebra.showing.ranked import Ranked
from sebra.showing.words import count, figure, listed, mean, name, percent

Level = Literal["strong", "some", "weak", "unknown"]
NEARLY, STRONG, SOME = 0.8, 0.5, 0.2  # strength of a cue
COSTLY = 15.0  # points between the I.D. accuracy and the worst group
SWALLOWED = 0.5  # share of the samples that are learned at once, or never


@dataclass(frozen=True)
class Answer:
    """One question with what the run can say to it."""

    question: str
    text: Markup


@dataclass(frozen=True)
class Step:
    """Something to do next, with the command for it where there is one."""

    text: Markup
    command: str = ""


@dataclass
class Summary:
    """What a person who reads one screen should take away."""

    level: Level
    headline: Markup
    answers: list[Answer] = field(default_factory=list)
    why: str = ""
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
    """Says what the figures support and no more.

    `data` (with the options that every command on it takes) and `run` are ready for a shell.
    """
    verdict = metrics.get("verdict")
    summary = _verdict(ranked, cues, biases, verdict)
    cost = _cost(metrics, comparisons)
    if cost:
        summary.answers.append(Answer("What does it cost a model?", cost))
    trust = _trust(metrics.get("ranking", {}), verdict["reason"] if verdict else "")
    if trust:
        summary.answers.append(Answer("Can the ranking be trusted?", Markup(" ").join(trust)))
    if ranked.noise is not None:
        summary.answers.append(Answer("Are labels wrong?", _suspects(ranked.noise)))
    summary.steps = _steps(ranked, summary.level, metrics, data, run or "RUN")
    return summary


def _verdict(
    ranked: Ranked, cues: Sequence[Cue], biases: Sequence[Bias], verdict: Mapping[str, str] | None
) -> Summary:
    if cues:
        summary = _from_cues(cues)
        if summary.level != "weak" or not (verdict and verdict["state"] == "found"):
            return summary
        found = _from_verdict(biases, verdict)  # by what no column says
        return replace(found, answers=[*found.answers, *summary.answers])
    if verdict is not None and len(ranked):
        return _from_verdict(biases, verdict)
    if biases:
        return _from_biases(biases)
    if not len(ranked):
        return Summary("unknown", Markup("A model, without a ranking of its training samples"))
    text = Markup(
        "Not measured: the data has no attribute columns and this method finds no separate biases. "
        "The ranking still orders each class. If the most spurious samples share something the "
        "class is not about (a place, a colour, an object beside it) and the least spurious lack "
        "it, that is the shortcut."
    )
    headline = Markup("No figure can say yet whether there is a shortcut: look at the galleries")
    return Summary("unknown", headline, [Answer("How strong is it?", text)])


def _from_verdict(biases: Sequence[Bias], verdict: Mapping[str, str]) -> Summary:
    """What the run itself concluded, without attributes."""
    said = Markup("{}.").format(verdict["reason"][:1].upper() + verdict["reason"][1:])
    if verdict["state"] == "nothing found":
        headline = Markup("No pattern found, and one like it would have been")
        return Summary("weak", headline, why=said)
    found = _from_biases(biases) if biases else Summary("unknown", Markup())
    answers = [Answer("Why?", said), *found.answers] if biases else []
    if verdict["state"] == "found":
        return Summary(found.level, found.headline, answers)
    headline = Markup("The figures cannot show whether there is a pattern: look at the galleries")
    if biases:
        headline = Markup(
            "A possible pattern, which the controls do not confirm: compare both sides"
        )
    return Summary("unknown", headline, answers, said)


def _from_cues(cues: Sequence[Cue]) -> Summary:
    order = sorted(cues, key=lambda cue: -cue.strength)
    best = order[0]
    level: Level = (
        "strong" if best.strength >= STRONG else "some" if best.strength >= SOME else "weak"
    )
    sure = "nearly always" if best.strength >= NEARLY else "often"
    headline = {
        "strong": Markup(f"A strong shortcut: {{}} {sure} gives the class away"),
        "some": Markup("A shortcut: {} helps to guess the class"),
        "weak": Markup("No strong shortcut among the known attributes; the strongest is {}"),
    }[level].format(name(best.name))
    said = [Markup("<b>{}</b> for {}").format(name(c.name), percent(c.accuracy)) for c in order[:4]]
    answers = [
        Answer(
            "How strong is it?",
            Markup(
                "How often one attribute alone tells the class of a training sample: {}. Always "
                "naming the largest class is right for {}."
            ).format(listed(said), percent(best.baseline)),
        )
    ]
    if level != "weak":
        shares = _shares(best.shares, 6)
        text = Markup("Share of each class that shows its usual {}: {}.")
        answers.append(Answer("Which classes?", text.format(name(best.name), shares)))
    return Summary(level, headline, answers)


def _from_biases(biases: Sequence[Bias]) -> Summary:
    """The first pattern in words, and how much rests on each."""
    first, many = biases[0], len(biases)
    headline = Markup("One pattern found" if many == 1 else f"{many} patterns found")
    if first.found.get("words"):
        said = sentence(first.found, first.per_class)
        headline = said if many == 1 else Markup("{}, the first: {}").format(headline, said)
    parts = [Markup("Pattern {}: {}").format(b.number, text) for b in biases
             if (text := rests(b.found))]  # fmt: skip
    shares = [Markup("Pattern {} is followed by {} of the samples.").format(
        b.number, percent(b.follows)) for b in biases]  # fmt: skip
    judge = Markup(
        "Whether a pattern is a shortcut or what the class is about is for a person to judge: "
        "compare both sides."
    )
    return Summary(
        "some",
        headline,
        [
            Answer("How much rests on it?", Markup(" ").join(parts or shares)),
            Answer("Is it a shortcut?", judge),
        ],
    )


def _shares(per_class: Mapping[str, float], most: int) -> Markup:
    order = sorted(per_class, key=lambda c: -per_class[c])
    parts = [Markup("{} {}").format(name(c, 40), percent(per_class[c])) for c in order]
    return listed(parts, most)


def _cost(metrics: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]]) -> Markup:
    """The first model's worst group against its usual accuracy, and what the others change."""
    named = [(c.get("name", "model"), c.get("evaluation", {})) for c in comparisons]
    named = named or [("The model", metrics.get("evaluation") or {})]
    known = [
        (label, e, inside, worst)
        for label, e in named
        if (inside := mean(e.get("id_accuracy"))) is not None
        and (worst := mean(e.get("worst_group"))) is not None
    ]
    if not known:
        return Markup("")
    label, evaluation, inside, worst = known[0]
    where = evaluation.get("worst_group_name")
    place = Markup(" ({})").format(name(where)) if isinstance(where, str) else Markup("")
    text = Markup("<b>{}</b> is right on {} % of data like the training data, but on {} % of its "
                  "worst group{}." if inside - worst >= COSTLY else
                  "<b>{}</b> is right on {} % of data like the training data and on {} % of its "
                  "worst group{}: little.")  # fmt: skip
    parts = [
        text.format(
            name(label), figure(evaluation["id_accuracy"]), figure(evaluation["worst_group"]), place
        )
    ]
    for other, scores, _, its_worst in known[1:4]:
        verb = "raises" if its_worst > worst else "brings"
        parts.append(
            Markup("<b>{}</b> {} the worst group to {} %.").format(
                name(other), verb, figure(scores["worst_group"])
            )
        )
    return Markup(" ").join(parts)


def _trust(ranking: Mapping[str, Any], told: str) -> list[Markup]:
    said = [one for one in ranking.get("controls", {}).get("said", ()) if one not in told]
    out = [Markup("{}.").format(str(one)[:1].upper() + str(one)[1:]) for one in said]
    learned = mean(ranking.get("learned"))
    share = mean(ranking.get("largest_bucket_share"))
    if learned is not None and learned < SWALLOWED:
        text = "{} of the samples were learned before the run ended; the others stand last."
        out.append(Markup(text).format(f"Only {percent(learned)}" if learned else "None"))
    elif share is not None and share > SWALLOWED:
        text = "{} of the samples were learned at once; their order says little."
        out.append(Markup(text).format(percent(share)))
    return out


def _suspects(noise: Any) -> Markup:
    n = int(np.count_nonzero(noise >= SUSPECT))
    if not n:
        return Markup("No sample stands out as mislabelled.")
    return Markup("{} {} mislabelled or out of place ({} of all).").format(
        count(n), "sample looks" if n == 1 else "samples look", percent(n / len(noise))
    )


def _steps(
    ranked: Ranked, level: Level, metrics: Mapping[str, Any], data: str, run: str
) -> list[Step]:
    """Advice that fits what was found and what was done already."""
    if not len(ranked):
        text = Markup("Rank the training samples, to see which shortcuts a model may take.")
        return [Step(text, f"sebra audit {data}")]
    steps = []
    if level == "weak":
        steps.append(Step(Markup("Train as usual: there is no pattern to take care of.")))
    elif level == "unknown":
        text = Markup(
            "Look at both ends of each class before you change anything: the figures do not say "
            "whether there is a pattern. More samples, or columns that describe them, would."
        )
        steps.append(Step(text))
    elif "evaluation" in metrics:
        text = Markup("Compare the model with plain training, below, before you use it.")
        steps.append(Step(text))
    else:
        if run:
            text = Markup("Say of each pattern whether it is a shortcut, meant or neither.")
            steps.append(Step(text, f"sebra review {run}"))
        text = Markup("If the pattern is not what the class is about, train a model without it.")
        steps.append(Step(text, f"sebra debias {data} --ranking {run}"))
        text = Markup("Collect more samples like those that break it, if you can.")
        steps.append(Step(text))
    if ranked.noise is not None and (ranked.noise >= SUSPECT).any():
        text = Markup("Mark wrong samples below, export the marks and leave them out.")
        steps.append(Step(text, f"sebra rank {data} --exclude marks.csv"))
    return steps
