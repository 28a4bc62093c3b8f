"""What can be said of the samples of a run, for words that name its patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.plugins import VOCABULARIES, plugins
from sebra.ranking.ranking import Ranking
from sebra.samples.table import Attribute, FeatureArray, Samples
from sebra.workflows.prepared import Prepared
from sebra_tools.words import Family, Word, words_of

Array = npt.NDArray[Any]


def name_patterns(ranking: Ranking, prepared: Prepared) -> None:
    """Adds `words` to every pattern of the ranking that has stages; see `words.py`."""
    patterns = ranking.details.get("patterns", ())
    if not patterns or not ranking.stages:
        return
    prepared.readable("train")  # what cannot be read leaves the samples
    part = prepared.samples.take(prepared.samples.rows("train"))
    families = list(families_of(part))
    for pattern, stage in zip(patterns, ranking.stages, strict=False):
        follows = ranking.table[stage].to_numpy()
        pattern["words"] = [w.to_dict() for w in pattern_words(families, prepared, part, follows)]


def pattern_words(
    families: Sequence[Family], prepared: Prepared, part: Samples, follows: Array
) -> list[Word]:
    """The words of one pattern; vocabularies of plug-ins are asked of its two sides."""
    asked = [plugin.load() for plugin in plugins(VOCABULARIES).values()]
    more = [family for ask in asked for family in ask(prepared, part, follows)]
    return words_of([*families, *more], follows, part.labels, part.classes)


def families_of(part: Samples) -> Iterator[Family]:
    """What the data itself names: columns of a table, and metadata."""
    content = part.content
    if isinstance(content, FeatureArray):
        names = content.names or [f"column {i}" for i in range(content.values.shape[1])]
        pairs = [(f"{n} is higher", f"{n} is lower", f"{n} is about {{:.4g}}") for n in names]
        yield Family("column", content.values[content.rows], pairs)
    for name, attribute in part.attributes.items():
        yield _levels(f"metadata {name}", name, attribute)


def _levels(kind: str, name: str, attribute: Attribute) -> Family:
    values = attribute.codes[:, None] == np.arange(len(attribute.levels))
    names = [(f"{name} “{level}”", f"{name} not “{level}”") for level in attribute.levels]
    return Family(kind, values, names)
