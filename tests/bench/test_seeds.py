"""Figures over seeds."""

from __future__ import annotations

import pytest

from sebra_bench.seeds import mean_std


def test_numbers_become_mean_deviation_and_count():
    found = mean_std([{"gaps": {"a": -1.0}}, {"gaps": {"a": -3}}])
    assert found == {"gaps": {"a": {"mean": -2.0, "std": pytest.approx(2**0.5), "n": 2}}}


def test_one_run_has_no_deviation():
    assert mean_std([{"x": 5.0}]) == {"x": {"mean": 5.0, "std": 0.0, "n": 1}}


def test_figures_that_a_run_lacks_are_not_counted():
    found = mean_std([{"x": 1.0, "y": None}, {"x": None, "y": None}, {"x": 3.0}, {}])
    assert found["x"] == {"mean": 2.0, "std": pytest.approx(2**0.5), "n": 2}
    assert found["y"] is None


def test_text_and_flags_stay_and_disagreement_is_listed():
    found = mean_std([{"name": "a", "ok": True}, {"name": "b", "ok": True}])
    assert found == {"name": ["a", "b"], "ok": True}


def test_lists_are_joined_by_name():
    runs = [
        {"groups": [{"name": "u", "accuracy": 10.0}, {"name": "v", "accuracy": 1.0}]},
        {"groups": [{"name": "v", "accuracy": 3.0}]},
    ]
    groups = {g["name"]: g["accuracy"] for g in mean_std(runs)["groups"]}
    assert groups["u"]["n"] == 1
    assert groups["v"]["mean"] == 2.0


def test_plain_lists_are_joined_by_position():
    found = mean_std([{"curve": [1, 2]}, {"curve": [3]}])["curve"]
    assert [(x["mean"], x["n"]) for x in found] == [(2.0, 2), (2.0, 1)]
