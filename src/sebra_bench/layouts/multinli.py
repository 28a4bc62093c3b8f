"""MultiNLI as published: jsonl files with `gold_label`, `sentence1`, `sentence2`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

# The test files were never published with labels: the two development files serve as val and test.
FILES = (
    "multinli_1.0_train.jsonl",
    "multinli_1.0_dev_matched.jsonl",
    "multinli_1.0_dev_mismatched.jsonl",
)
SHORT = ("train", "dev_matched", "dev_mismatched")  # a pair's number may occur in two files
UNDECIDED = "-"  # no label had a majority


@dataclass(frozen=True)
class Options:
    """words: negation words of the second sentence, separated by commas.

    The default is the list of the group-DRO experiments (nobody, no, never, nothing).
    """

    words: str = "nobody,no,never,nothing"


@layout(
    "multinli",
    "MultiNLI (multinli_1.0_*.jsonl): sentence pairs, biased by negation words",
    Options,
)
def read(path: Path, options: Options) -> Samples:
    """Class: the gold label. Attribute: negation, a negation word in the second sentence."""
    root = require_folder(path, "multinli")
    words = word_list(options.words, "multinli")
    pairs = read_pairs(root, FILES, "multinli", _pairs)
    found = [negated(pair.second, words) for pair in pairs]
    return samples_of(pairs, found, "multinli", root)


def _pairs(file: Path, split: int) -> Iterator[Pair]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield from _pair(line, f"multinli: {file}, line {number}", split)


def _pair(line: str, where: str, split: int) -> Iterator[Pair]:
    try:
        row: dict[str, Any] = json.loads(line)
        label, first, second = row["gold_label"], row["sentence1"], row["sentence2"]
        name = row["pairID"]
    except (ValueError, TypeError):
        raise UsageError(f"{where}: is not a JSON object") from None
    except KeyError as error:
        raise UsageError(f"{where}: no field {error}") from None
    if label != UNDECIDED:
        yield Pair(
            f"{SHORT[split]}/{name}", str(first), str(second), read_label(str(label), where), split
        )
