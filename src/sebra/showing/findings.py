"""A pattern for people: one sentence, how much rests on it, and what to look at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from sebra.measuring.ranks import areas
from sebra.samples.table import FeatureArray
from sebra.showing import charts
from sebra.showing.ranked import FOLLOWS, Ranked
from sebra.showing.words import figure, listed, name, percent, shortened, visible

Array = npt.NDArray[Any]
MOST_CLASSES = 3  # named in a sentence
MOST_COLUMNS = 4  # drawn as histograms
FEWEST = 2  # samples on either side
QUOTED = re.compile("(?:contains|lacks) “([^”]+)”")


def sentence(pattern: Mapping[str, Any], shares: Mapping[str, float]) -> Markup:
    """What most of each class has in common, by the word that tells most; else that none does."""
    words = pattern.get("words") or ()
    if not words:
        return Markup("A pattern without a word for it: compare both sides")
    phrases = words[0]["phrases"]
    order = sorted(phrases, key=lambda c: -shares.get(c, 0.0))
    said = [
        Markup("{} of {}: <b>{}</b>").format(
            percent(shares.get(c, 0.0)), name(c, 40), visible(phrases[c])
        )
        for c in order[:MOST_CLASSES]
    ]
    more = len(order) - len(said)
    return Markup("; ").join(said) + (f"; {more} more classes" if more > 0 else "")


def telling(pattern: Mapping[str, Any]) -> list[Markup]:
    """How well each word alone tells both sides apart."""
    out = []
    for word in pattern.get("words") or ():
        phrases = dict.fromkeys(word["phrases"].values())
        said = listed([Markup("<b>{}</b>").format(visible(p)) for p in phrases], 2)
        out.append(Markup("{} ({})").format(said, figure(word["area"], 2)))
    return out


def rests(pattern: Mapping[str, Any]) -> Markup:
    """Accuracy of the plain model with the pattern and against it; empty where not measured."""
    sides = [pattern.get(key) or {} for key in ("with_it", "against_it")]
    if any("accuracy" not in side for side in sides):
        return Markup("")
    kept, lost = sides
    return Markup(
        "A plain model is right on <b>{} %</b> of those that follow it and on <b>{} %</b> of the "
        "{} that break it ({} to {} %, allowing for chance)."
    ).format(
        figure(kept["accuracy"], 0),
        figure(lost["accuracy"], 0),
        figure(lost["samples"]),
        figure(lost["low"], 0),
        figure(lost["high"], 0),
    )


def in_words(pattern: Mapping[str, Any]) -> str:
    """The sentence and what rests on it, for a terminal."""
    said = [sentence(pattern, pattern.get("share", {})), rests(pattern)]
    return ". ".join(text.striptags() for text in said if text)


def phrases_of(pattern: Mapping[str, Any]) -> list[str]:
    """The phrases of texts that tell, for marking them in the rows."""
    found = (p for w in pattern.get("words") or () for p in w["phrases"].values())
    return list(dict.fromkeys(m[1] for p in found if (m := QUOTED.match(p))))


def marked(text: str, phrases: Sequence[str], shown: int = 300) -> Markup:
    """A text with these phrases marked."""
    short = shortened(visible(text), shown)
    if not phrases:
        return Markup('<bdi class="name">{}</bdi>').format(short)
    each = "|".join(re.escape(p).replace(r"\ ", r"\W+") for p in phrases)
    parts = re.split(rf"(?i)\b({each})\b", short)
    inside = [Markup("<mark>{}</mark>").format(p) if i % 2 else p for i, p in enumerate(parts)]
    return Markup('<bdi class="name">{}</bdi>').format(Markup("").join(inside))


def histograms(ranked: Ranked, stage: str) -> list[Markup]:
    """Of a table of numbers: the columns that tell both sides of a class apart best."""
    content = ranked.samples.content
    if not isinstance(content, FeatureArray):
        return []
    return [
        charts.both_sides(
            f"{column_name(content, k)}, {ranked.classes[c]}", follow, other, f"c-{stage}-{c}"
        )
        for _, c, k, follow, other in _contrasts(ranked, stage)[:MOST_COLUMNS]
    ]


def _contrasts(ranked: Ranked, stage: str) -> list[tuple[float, int, int, Array, Array]]:
    """Of each class the column that tells best: how well, class, column, both sides' values."""
    content = ranked.samples.content
    assert isinstance(content, FeatureArray)
    found = []
    for c, order in enumerate(ranked.orders):
        rows = order[ranked.rows[order] >= 0]
        side = ranked.stages[stage][rows] > FOLLOWS
        if min(side.sum(), (~side).sum()) < FEWEST:
            continue
        values = np.asarray(content.values[content.rows[ranked.rows[rows]]], dtype=np.float64)
        ahead = np.abs(areas(values, side) - 0.5)
        best = int(ahead.argmax())
        found.append((float(ahead[best]), c, best, values[side, best], values[~side, best]))
    return sorted(found, key=lambda item: -item[0])


def telling_columns(ranked: Ranked, most: int) -> list[int]:
    """Columns of a table of numbers, those that tell patterns first."""
    content = ranked.samples.content
    if not isinstance(content, FeatureArray):
        return []
    first = [k for stage in ranked.stages for _, _, k, *_ in _contrasts(ranked, stage)]
    return list(dict.fromkeys([*first, *range(content.values.shape[1])]))[:most]


def column_name(content: FeatureArray, column: int) -> str:
    return content.names[column] if content.names else f"column {column}"
