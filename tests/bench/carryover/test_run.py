"""Runs on tiny sets, what is kept of them, and what is read off the rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from bench.carryover import canvas
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.samples.open import open_samples
from sebra_bench.carryover import run as running
from sebra_bench.carryover import sets
from sebra_bench.carryover.figures import calibration_error, finding, id_weights
from sebra_bench.carryover.planting import CONSTANT, Plan, plant
from sebra_bench.carryover.run import PLAIN, CarryOptions, carryover
from sebra_bench.carryover.schemes import Scheme
from sebra_bench.carryover.sets import (
    BIASED,
    NAMING,
    ORDINARY,
    PLANTED,
    REPORT,
    SETTINGS,
    BenchSet,
    all_sets,
    choose_sets,
)
from sebra_bench.carryover.summary import lines_of, summary
from sebra_bench.rows import ROWS

OPTIONS = CarryOptions(("stages", "logistic"), seeds=1, device="cpu")


@pytest.fixture(scope="module")
def two_sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    iris = sets.write_canvas("sklearn:iris", (), folder / "iris")
    planted = plant(Plan("sklearn:digits", CONSTANT, Scheme(), ("1", "8")), folder / "planted")
    return [
        BenchSet("iris", ORDINARY, SETTINGS, lambda: iris),
        BenchSet("digits-constant", PLANTED, REPORT, lambda: planted.data),
    ]


@pytest.fixture(scope="module")
def rows(two_sets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, carryover(two_sets, OPTIONS, folder)


def test_every_method_has_a_row_on_every_set_and_true_groups_where_there_are_any(rows):
    found = {(row["data"], row["method"]) for row in rows[1]}
    on_both = {PLAIN, "stages", "logistic"}
    assert found == {("iris", m) for m in on_both} | {
        ("digits-constant", m) for m in (*on_both, "true-groups")
    }
    for row in rows[1]:
        assert "error" not in row
        assert row["evaluation"]["average"] > 50
        assert 0 <= row["ece"] <= 1
        assert row["seconds"]["run"] > 0
        assert row["selection"]
        assert row["version"]


def test_rows_that_are_there_are_not_run_again(rows, two_sets, monkeypatch):
    folder, before = rows
    lines = (folder / ROWS).read_text(encoding="utf-8")
    monkeypatch.setattr(running, "debias_prepared", None)  # whoever calls it fails
    assert carryover(two_sets, OPTIONS, folder) == [json.loads(line) for line in lines.splitlines()]
    assert (folder / ROWS).read_text(encoding="utf-8") == lines
    assert len(before) == len(lines.splitlines())


def test_a_run_that_failed_is_kept_as_such_and_tried_again(two_sets, tmp_path):
    unknown = CarryOptions(("nobody",), seeds=1, device="cpu")
    for _ in range(2):
        found = carryover(two_sets[:1], unknown, tmp_path)
        assert [row["method"] for row in found if "error" in row] == ["nobody"]
    lines = (tmp_path / ROWS).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["method"] for line in lines] == [PLAIN, "nobody", "nobody"]


def test_a_set_that_is_not_there_is_left_out(tmp_path):
    def missing():
        raise UsageError("no such folder")

    assert carryover([BenchSet("x", ORDINARY, REPORT, missing)], OPTIONS, tmp_path) == []


def row(data, method, average, balanced=None, kind=PLANTED, role=REPORT, seconds=1.0, **more):
    evaluation = {"average": average, "balanced_average": balanced, "id_accuracy": average}
    return {
        "data": data,
        "kind": kind,
        "role": role,
        "method": method,
        "seed": 0,
        "mode": "features",
        "evaluation": evaluation,
        "seconds": {"run": seconds},
        **more,
    }


def test_harm_and_what_is_recovered():
    rows = [
        row("pets", PLAIN, 90, kind=ORDINARY),
        row("pets", "auto", 87, kind=ORDINARY, seconds=2.0, finding={"stages": 1}),
        row("cats", PLAIN, 80, kind=ORDINARY, role=SETTINGS),
        row("cats", "auto", 81, kind=ORDINARY, role=SETTINGS, finding={"stages": 0}),
        row("mark", PLAIN, 60, 60),
        row("mark", "auto", 75, 75, finding={"stages": 1, "area": 0.95, "found": True}),
        row("mark", "true-groups", 80, 80),
        row("nothing", PLAIN, 80, 80),
        row("nothing", "auto", 79, 79, finding={"stages": 0, "area": 0.6, "found": False}),
        row("nothing", "true-groups", 81, 81),
    ]
    found = {(f["method"], f["role"]): f for f in summary(lines_of(rows))}
    auto = found["auto", "both"]
    assert auto["harm"] == pytest.approx(1.0)
    assert auto["worst_harm"] == {"value": 3, "data": "pets"}
    assert auto["claims_on_ordinary"] == 0.5
    # Where the true groups gain a point, there is nothing to recover.
    assert auto["planted"]["recovered"] == pytest.approx(0.75)
    assert auto["planted"]["recovered_together"] == pytest.approx((15 - 1) / (20 + 1))
    assert auto["planted"]["worst_gain"] == {"value": -1, "data": "nothing"}
    assert auto["planted"]["found"] == 0.5
    assert auto["planted"]["found_where_it_costs"] == 1
    assert found["auto", SETTINGS]["harm"] == pytest.approx(-1.0)
    assert found["true-groups", "both"]["planted"]["recovered"] == 1


def test_of_several_seeds_the_mean_counts_and_failures_are_counted():
    rows = [
        row("a", PLAIN, 80, kind=ORDINARY),
        row("a", "auto", 78, kind=ORDINARY),
        {**row("a", "auto", 74, kind=ORDINARY), "seed": 1},
        {**row("a", "auto", 0, kind=ORDINARY), "seed": 2, "error": "no ranking"},
    ]
    auto = next(f for f in summary(lines_of(rows)) if f["method"] == "auto")
    assert auto["harm"] == pytest.approx(4.0)
    assert auto["failed"] == 1


def test_the_budget_is_kept_run_by_run():
    rows = [{**row("a", PLAIN, 90, kind=ORDINARY), "seed": s} for s in range(2)]
    rows += [{**row("a", "auto", 90 - 5 * s, kind=ORDINARY), "seed": s} for s in range(2)]
    auto = next(f for f in summary(lines_of(rows)) if f["method"] == "auto")
    assert auto["within_budget"] == 0.5


def test_calibration_error_is_the_gap_between_being_sure_and_being_right():
    sure = np.full((100, 2), [0.8, 0.2])
    even = np.ones(100)
    assert calibration_error(sure, np.r_[np.zeros(80), np.ones(20)], even) == pytest.approx(0)
    assert calibration_error(sure, np.r_[np.zeros(50), np.ones(50)], even) == pytest.approx(0.3)
    light = np.r_[np.ones(50), np.zeros(50)]  # only those that are right count
    assert calibration_error(sure, np.r_[np.zeros(50), np.ones(50)], light) == pytest.approx(0.2)


@pytest.fixture
def marked(tmp_path):
    """Four of five samples of each class follow the mark in training, half of them in the test."""
    label = np.repeat(["a", "b"], 20)
    split = np.tile(np.repeat(["train", "test"], 10), 2)
    usual = np.where(label == "a", "yes", "no")
    breaks = np.tile([0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 2).astype(bool)
    mark = np.where(breaks, np.where(usual == "yes", "no", "yes"), usual)
    np.savez(tmp_path / "d.npz", X=np.zeros((40, 2)), y=label, split=split, mark=mark)
    return open_samples(str(tmp_path / "d.npz")), breaks


def test_in_distribution_weights_are_the_shares_of_training(marked):
    samples, breaks = marked
    weights = id_weights(samples)
    assert weights[breaks[samples.rows("test")]].sum() / weights.sum() == pytest.approx(0.2)


def test_a_pattern_is_found_where_a_stage_tells_its_samples_apart(marked):
    samples, breaks = marked
    rows = samples.rows("train")
    table = pd.DataFrame({"id": samples.ids[rows], "spuriosity": np.linspace(1, 0, len(rows))})
    right = Ranking(table.assign(stage_1=1.0 - breaks[rows]))
    wrong = Ranking(table.assign(stage_1=1.0 * breaks[rows]))
    assert finding(right, samples, None)["area"] == 1
    assert finding(right, samples, None)["found"] is True
    assert finding(right, samples, None)["stage"] == "stage_1"
    assert finding(wrong, samples, ["a"])["area"] == 0
    assert finding(wrong, samples, ["a"])["found"] is False
    without = finding(Ranking(table), samples, None)
    assert without["stages"] == 0
    assert without["found"] is False
    assert finding(None, samples, None) == {}


def test_every_kind_of_set_has_both_roles_and_there_are_enough_ordinary_ones():
    found = all_sets().values()
    for kind in (ORDINARY, PLANTED, BIASED):
        assert {s.role for s in found if s.kind == kind} - {NAMING} == {SETTINGS, REPORT}
    assert sum(s.kind == ORDINARY for s in found) >= 14


def test_sets_are_chosen_by_name_kind_or_role():
    assert [s.name for s in choose_sets(["wine", "bar"])] == ["wine", "bar"]
    assert {s.kind for s in choose_sets(["planted"])} == {PLANTED}
    assert {s.role for s in choose_sets(["planted"])} == {SETTINGS, REPORT}
    more = choose_sets(["planted", "naming"])
    assert len({s.name for s in more}) == 40
    assert {s.role for s in choose_sets(["report"])} == {REPORT}
    assert {(s.kind, s.role) for s in choose_sets(["planted:report"])} == {(PLANTED, REPORT)}
    assert len(choose_sets(["quick"])) == len(sets.QUICK_SETS)
    with pytest.raises(UsageError, match="--sets"):
        choose_sets(["nothing"])


def test_no_planted_set_shares_its_canvas_with_the_other_role():
    role = {s.name: s.role for s in choose_sets(["ordinary"])}
    for planted in choose_sets(["planted"]):
        base = max((name for name in role if planted.name.startswith(f"{name}-")), key=len)
        assert role[base] == planted.role


def test_the_commands(call_cli, tmp_path):
    planted = call_cli(
        "bench", "plant", "sklearn:iris", "--nuisance", "constant", "--scheme", "one",
        "--out", tmp_path / "planted", "--json",
    )  # fmt: skip
    assert planted.status == 0, planted.stderr
    said = json.loads(planted.stdout)
    assert open_samples(said["data"]).attributes.keys() == {"mark"}
    asked = ("bench", "carryover", "--sets", "iris", "--methods", "logistic", "--seeds", 1)
    done = call_cli(*asked, "--device", "cpu", "--out", tmp_path / "run", "--json")
    assert done.status == 0, done.stderr
    assert {f["method"] for f in json.loads(done.stdout)["summary"]} == {PLAIN, "logistic"}
    shown = call_cli(*asked, "--device", "cpu", "--out", tmp_path / "run")
    assert "worst harm" in shown.stdout
    wrong = call_cli("bench", "plant", "sklearn:iris", "--share", 2, "--out", tmp_path / "x")
    assert wrong.status == 2
    assert "--share" in wrong.stderr


@pytest.mark.slow
def test_fine_tuned_the_true_groups_are_drawn_evenly_and_the_regression_is_refused(tmp_path):
    folder = canvas.pictures(tmp_path / "canvas", train=24, test=8, side=32)
    planted = plant(Plan(str(folder), "border", Scheme(share=0.9)), tmp_path / "planted")
    chosen = BenchSet("tiny", PLANTED, REPORT, lambda: planted.data)
    options = CarryOptions(("logistic",), 1, "finetune", "cpu", "none")
    found = {row["method"]: row for row in carryover([chosen], options, tmp_path / "run")}
    assert "frozen features" in found["logistic"]["error"]
    # Random pictures: whoever follows the frame has half of the balanced test right.
    assert found["true-groups"]["evaluation"]["balanced_average"] <= 80
    assert found[PLAIN]["evaluation"]["id_accuracy"] > 75
