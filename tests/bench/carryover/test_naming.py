"""Which words and places of a planted mark count as right."""

from __future__ import annotations

import numpy as np

from bench.carryover import canvas
from sebra.loading.descriptors import BORDER, LIGHT
from sebra.samples.open import open_samples
from sebra.samples.table import ImageArray
from sebra_bench.carryover.naming import _follow, _peaks, _right, summary
from sebra_bench.carryover.planting import Plan, plant
from sebra_tools.words import Word


def test_a_frame_is_named_by_the_border_and_its_map_peaks_there(tmp_path):
    data = str(canvas.pictures(tmp_path / "canvas"))
    planted = plant(Plan(data, "border"), tmp_path / "planted")
    assert _right(Word(BORDER, 0.9, {"cat": "darker along the top edge"}), planted)
    assert not _right(Word(LIGHT, 0.9, {"cat": "darker"}), planted)
    samples = open_samples(planted.data)
    part = samples.take(samples.rows("train"))
    from sebra.loading.decode import load_images

    part, images = load_images(part)
    assert isinstance(images, ImageArray)
    # One of 20 breaks the mark in each class; with two more there is something to compare.
    follows = _follow(part)
    assert follows.sum() == len(follows) - 2
    carries = np.array([name in planted.boxes for name in part.ids])
    peaks = _peaks(part, images, planted, carries | (part.labels == part.labels[0]))
    assert all(p is None or p == 1.0 for p in peaks.values())


def test_a_token_and_a_column_are_named_to_the_letter(tmp_path):
    data = str(canvas.texts(tmp_path / "x.csv"))
    planted = plant(Plan(data, "token"), tmp_path / "planted")
    assert _right(Word("phrase", 0.9, {"odd": "contains “honestly”"}), planted)
    assert not _right(Word("phrase", 0.9, {"odd": "contains “sentence”"}), planted)


def test_the_summary_counts_words_and_peaks():
    said = {"words": [], "right": True, "peaks": {"a": 0.9, "b": None}}
    rows = [{"data": "x", "true": said, "found": said}, {"data": "y", "true": {"right": False}}]
    found = summary(rows)
    assert found["found"] == {
        "named": 1, "of": 1, "maps": 1, "no map": 1, "peak on the mark": 1,
    }  # fmt: skip
    assert found["true"]["of"] == 2
