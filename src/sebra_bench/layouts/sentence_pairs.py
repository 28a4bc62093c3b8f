"""What the layouts of sentence pairs share: their files, classes, the negation attribute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.table import Attribute, Samples, Texts

CLASSES = ("contradiction", "entailment", "neutral")
LEVELS = ("without", "with")
# Negation is the shortcut to contradiction, whatever is more frequent inside that class.
ALIGNED = (1, 0, 0)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_CONTRACTED = "n't"


@dataclass(frozen=True)
class Pair:
    """One labelled sentence pair."""

    id: str
    first: str
    second: str
    label: str
    split: int


def read_label(text: str, where: str) -> str:
    """The class of a judgement, in lower case."""
    label = text.strip().lower()
    if label not in CLASSES:
        raise UsageError(f"{where}: label {text!r} is none of {', '.join(CLASSES)}")
    return label


def word_list(option: str, name: str) -> frozenset[str]:
    """The words of an option, separated by commas."""
    words = frozenset(word.strip().lower() for word in option.split(",") if word.strip())
    if not words:
        raise UsageError(f"{name}: option words is empty, give at least one negation word")
    return words


def negated(sentence: str, words: frozenset[str]) -> bool:
    """Whether a whole word of the sentence is in `words`; `n't` there stands for isn't, don't, …"""
    found = {word.replace("’", "'") for word in _WORD.findall(sentence.lower())}
    if _CONTRACTED in words and any(word.endswith(_CONTRACTED) for word in found):
        return True
    return not found.isdisjoint(words)


def read_pairs(
    root: Path, files: Sequence[str], name: str, read: Callable[[Path, int], Iterator[Pair]]
) -> list[Pair]:
    """The pairs of all files (train, val, test) that are there; the first must be.

    read: gives the pairs of a file, which belong to the split of that number.
    """
    pairs: list[Pair] = []
    for split, file in enumerate(files):
        if (root / file).is_file():
            try:
                pairs += read(root / file, split)
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{name}: {root / file} cannot be read ({error})") from None
        elif split == 0:
            raise UsageError(f"{name}: no file {file} in {root}")
    return pairs


def samples_of(pairs: Sequence[Pair], negation: Sequence[bool], name: str, root: Path) -> Samples:
    """The table of `pairs` with their negation attribute."""
    if not pairs:
        raise UsageError(f"{name}: no labelled sentence pairs in {root}")
    labels = [CLASSES.index(pair.label) for pair in pairs]
    codes = np.asarray(negation, dtype=np.int64)
    return Samples(
        ids=np.array([pair.id for pair in pairs], dtype=object),
        labels=np.asarray(labels, dtype=np.int64),
        classes=CLASSES,
        split=np.array([pair.split for pair in pairs], dtype=np.int8),
        content=Texts(tuple(p.first for p in pairs), tuple(p.second for p in pairs)),
        attributes={"negation": Attribute("negation", codes, LEVELS, aligned=ALIGNED)},
        name=name,
    )
