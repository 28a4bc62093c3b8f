"""What is counted when findings are held against what was planted, or against nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sebra_bench import nulls, suspects
from sebra_bench.carryover import agreement


def test_the_families_cover_classes_and_units_and_have_a_seed_each():
    drawn = [nulls.null_array("weak cues", seed) for seed in range(20)]
    assert {d["classes"] for *_, d in drawn} == set(nulls.CLASSES)
    assert {d["noise"] for *_, d in drawn} == set(nulls.NOISES)
    for x, y, d in drawn:
        assert x.shape == (d["samples"], d["columns"])
        assert len(np.unique(y)) == d["classes"]
    spread = np.concatenate([x.std(0) for x, *_ in drawn])
    assert spread.min() < 0.05
    assert spread.max() > 50
    np.testing.assert_array_equal(drawn[3][0], nulls.null_array("weak cues", 3)[0])


@pytest.mark.parametrize(
    ("family", "share"), [("5 % wrong labels", 0.05), ("20 % wrong labels", 0.2)]
)
def test_as_many_labels_are_wrong_as_the_family_says(family, share):
    """With cues this clear the class is where the largest of its columns says."""
    x, y, drawn = nulls.null_array(family, 3)  # ten classes, a column each
    x = (x - x.mean(0)) / x.std(0)
    wrong = (x[:, : drawn["classes"]].argmax(1) != y).mean()
    assert wrong == pytest.approx(share, abs=0.05)


def test_runs_are_counted_and_not_made_again(tmp_path):
    rows = nulls.nulls(("one soft cue",), 2, tmp_path)
    assert nulls.summary(rows)["runs"] == 2
    before = (tmp_path / "rows.jsonl").read_text()
    assert nulls.nulls(("one soft cue",), 2, tmp_path) == [
        json.loads(s) for s in before.split("\n") if s
    ]
    assert (tmp_path / "rows.jsonl").read_text() == before
    rows[0]["stages"] = 1
    assert nulls.summary(rows)["named"] == nulls.summary(rows)["families"]["one soft cue"]["named"]
    assert nulls.summary(rows)["named"] >= 1


def test_the_control_agrees_where_both_say_found_or_neither(tmp_path, monkeypatch):
    from sebra_bench.carryover.sets import choose_sets

    monkeypatch.setattr(agreement, "TRIALS", 2)
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path / "cache"))
    (row,) = agreement.agreement(choose_sets(["wine-constant-one"]), tmp_path / "out")
    assert (len(row["one"]), len(row["each"])) == (1, 1)  # three classes
    assert (row["trials"], row["predicted"]) == (1, row["one"][0] >= 0.9)  # its mark is one class's
    assert row["agrees"] == (row["predicted"] == row["finding"]["found"])
    other = {**row, "data": "x", "role": "report", "agrees": not row["agrees"]}
    found = agreement.summary([row, other])
    assert (found["sets"], found["agree"]) == (2, 1)
    assert found["disagree"] == [r["data"] for r in (row, other) if not r["agrees"]]


def test_shares_of_what_is_flagged():
    flagged, wrong = np.array([1, 1, 1, 0, 0], bool), np.array([1, 0, 1, 1, 1], bool)
    assert suspects.figures(flagged, wrong) == {
        "flagged": 3, "recall": 0.5, "precision": pytest.approx(2 / 3),
    }  # fmt: skip
    rows = [{"data": "a", "noise": suspects.figures(f, wrong)} for f in (flagged, wrong)]
    mean = suspects.summary(rows)["a"]["noise"]
    assert mean["recall"] == pytest.approx(0.75)
    assert mean["precision"] == pytest.approx(5 / 6)


def test_cleanlab_is_asked_of_the_same_probabilities():
    pytest.importorskip("cleanlab")
    rng = np.random.default_rng(0)
    true = np.arange(400) % 4
    logits = 3 * np.eye(4)[true] + 0.5 * rng.normal(size=(400, 4))
    labels = np.where(np.arange(400) < 20, (true + 1) % 4, true)
    for flagged in suspects.flagged_by_cleanlab(logits, labels).values():
        assert flagged[:20].mean() > 0.8
        assert flagged[20:].mean() < 0.05
