"""SICK 2014 as published: three tab-separated files of sentence pairs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sebra.errors import UsageError
from sebra.samples.files import require_folder
from sebra.samples.layouts import layout
from sebra.samples.table import Samples
from sebra_bench.layouts.sentence_pairs import (
    Pair,
    negated,
    read_label,
    read_pairs,
    samples_of,
    word_list,
)

FILES = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")  # train, val, test
COLUMNS = ("pair_ID", "sentence_A", "sentence_B", "entailment_judgment")


@dataclass(frozen=True)
class Options:
    """words: negation words, separated by commas; `n't` stands for every contraction with it."""

    words: str = "no,not,nobody,nothing,never,none,neither,nor,nowhere,n't"


@layout(
    "sick",
    "SICK 2014 (SICK_train.txt, …): sentence pairs, biased by negation words",
    Options,
)
def read(path: Path, options: Options) -> Samples:
    """Class: the entailment judgement. Attribute: negation, a negation word in either sentence."""
    root = require_folder(path, "sick")
    words = word_list(options.words, "sick")
    pairs = read_pairs(root, FILES, "sick", _pairs)
    found = [negated(p.first, words) or negated(p.second, words) for p in pairs]
    return samples_of(pairs, found, "sick", root)


def _pairs(file: Path, split: int) -> Iterator[Pair]:
    text = file.read_text(encoding="utf-8-sig")
    rows = csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    missing = [c for c in COLUMNS if c not in (rows.fieldnames or ())]
    if missing:
        raise UsageError(f"sick: {file} has no column {missing[0]!r}")
    for row in rows:
        where = f"sick: {file}, line {rows.line_num}"
        number, first, second, label = (row[c] for c in COLUMNS)
        if not number or not first or not second or not label:
            raise UsageError(f"{where}: expected {len(rows.fieldnames or ())} values")
        yield Pair(number.strip(), first, second, read_label(label, where), split)
