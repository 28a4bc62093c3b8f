"""SICK and MultiNLI: the published files, and what counts as a negation."""

from __future__ import annotations

import json

import numpy as np
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import Texts, aligned_codes
from sebra_bench.layouts.sentence_pairs import negated

CLASSES = ("contradiction", "entailment", "neutral")


@pytest.mark.parametrize(
    ("sentence", "words", "expected"),
    [
        ("There is no dog", "no", True),
        ("NO dog, nothing", "no", True),
        ("A noble man knows", "no", False),
        ("The dog isn't here", "n't", True),
        ("The dog isn’t here", "n't", True),
        ("The dog isn't here", "not", False),
        ("Not now.", "not", True),
        ("", "no", False),
    ],
)
def test_negation_is_a_whole_word(sentence, words, expected):
    assert negated(sentence, frozenset(words.split(","))) is expected


def test_sick_reads_the_three_files(tmp_path):
    samples = open_samples(f"sick:{miniatures.sick(tmp_path)}")
    assert samples.classes == CLASSES
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [48, 48, 48]
    rows = [row for split in range(3) for row in miniatures.sentence_pairs(48, split)]
    assert isinstance(samples.content, Texts)
    assert samples.content.first == tuple(a for a, _, _ in rows)
    assert samples.content.second == tuple(b for _, b, _ in rows)
    assert [samples.classes[c] for c in samples.labels] == [label for _, _, label in rows]
    expected = ["not" in f"{a} {b}".split() or "no" in b.split() for a, b, _ in rows]
    assert samples.attributes["negation"].codes.astype(bool).tolist() == expected


def test_negation_counts_in_either_sentence_of_sick_and_in_the_second_of_multinli(tmp_path):
    a, b = "no man is running", "a man is running"
    pairs = [(a, b), (b, a), (b, b), (a, a)]
    lines = ["pair_ID\tsentence_A\tsentence_B\tentailment_judgment"]
    lines += [
        f"{8 * c + 2 * k + again}\t{first}\t{second}\t{label}"
        for c, label in enumerate(CLASSES)
        for k, (first, second) in enumerate(pairs)
        for again in range(2)
    ]
    (tmp_path / "SICK_train.txt").write_text("\n".join(lines), encoding="utf-8")
    codes = open_samples(f"sick:{tmp_path}").attributes["negation"].codes
    np.testing.assert_array_equal(codes, [1, 1, 1, 1, 0, 0, 1, 1] * 3)
    other = open_samples(f"sick:{tmp_path}?words=nobody").attributes["negation"].codes
    np.testing.assert_array_equal(other, 0)
    rows = [
        {"gold_label": label, "sentence1": f, "sentence2": s, "pairID": f"{label}{k}{again}"}
        for label in CLASSES
        for k, (f, s) in enumerate(pairs)
        for again in range(2)
    ]
    text = "\n".join(map(json.dumps, rows))
    (tmp_path / "multinli_1.0_train.jsonl").write_text(text, encoding="utf-8")
    codes = open_samples(f"multinli:{tmp_path}").attributes["negation"].codes
    np.testing.assert_array_equal(codes, [0, 0, 1, 1, 0, 0, 1, 1] * 3)


def test_multinli_leaves_out_undecided_pairs_and_keeps_the_published_splits(tmp_path):
    samples = open_samples(f"multinli:{miniatures.multinli(tmp_path)}")
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [47, 47, 47]
    assert samples.ids[samples.rows("val")][0] == "dev_matched/0e"
    for c, name in enumerate(samples.classes):
        code = aligned_codes(samples, samples.attributes["negation"])[c]
        assert code == (1 if name == "contradiction" else 0)


@pytest.mark.parametrize("layout", ["sick", "multinli"])
def test_a_missing_file_is_named(layout, tmp_path):
    with pytest.raises(UsageError, match=f"{layout}: no file .*train"):
        open_samples(f"{layout}:{tmp_path}")


@pytest.mark.parametrize("layout", ["sick", "multinli"])
def test_a_later_file_may_be_absent_but_must_be_text(layout, tmp_path):
    getattr(miniatures, layout)(tmp_path)
    last = sorted(tmp_path.glob("*test*" if layout == "sick" else "*mismatched*"))[0]
    last.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UsageError, match=f"{layout}: .*{last.name} cannot be read"):
        open_samples(f"{layout}:{tmp_path}")
    last.unlink()
    samples = open_samples(f"{layout}:{tmp_path}")
    assert len(samples.rows("val"))
    assert not len(samples.rows("test"))


def test_what_is_wrong_with_a_row_is_said(tmp_path):
    miniatures.sick(tmp_path)
    file = tmp_path / "SICK_train.txt"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace("NEUTRAL", "PERHAPS", 1), encoding="utf-8")
    with pytest.raises(UsageError, match=r"SICK_train.txt, line 3: label 'PERHAPS' is none of"):
        open_samples(f"sick:{tmp_path}")
    file.write_text(whole.replace("sentence_B", "second", 1), encoding="utf-8")
    with pytest.raises(UsageError, match="no column 'sentence_B'"):
        open_samples(f"sick:{tmp_path}")
    file.write_text(whole + "77\tonly one\n", encoding="utf-8")
    with pytest.raises(UsageError, match="line 50: expected 5 values"):
        open_samples(f"sick:{tmp_path}")
    with pytest.raises(UsageError, match="words is empty"):
        open_samples(f"sick:{tmp_path}?words=,")
    miniatures.multinli(tmp_path)
    file = tmp_path / "multinli_1.0_train.jsonl"
    file.write_text(file.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
    with pytest.raises(UsageError, match="line 49: is not a JSON object"):
        open_samples(f"multinli:{tmp_path}")
    file.write_text('{"gold_label": "neutral"}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="line 1: no field 'sentence1'"):
        open_samples(f"multinli:{tmp_path}")


def test_the_real_sick(data_root):
    folder = data_root / "sick"
    if not folder.is_dir():
        pytest.skip(f"no SICK at {folder}")
    samples = open_samples(f"sick:{folder}")
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [4500, 500, 4927]
    train = samples.rows("train")
    codes = samples.attributes["negation"].codes[train]
    share = [codes[samples.labels[train] == c].mean() for c in range(3)]
    assert share[0] > 0.85
    assert share[1] < 0.02
    assert share[2] < 0.2
