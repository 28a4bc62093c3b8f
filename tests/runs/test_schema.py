"""`metrics.json` holds to the schema that ships, and the schema refuses what it should."""

from __future__ import annotations

import copy
import json
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from miniatures import array_folder, features, folder
from sebra_bench.seeds import mean_std

SCHEMA = json.loads((files("sebra.runs") / "metrics.schema.json").read_text(encoding="utf-8"))
CHECK = Draft202012Validator(SCHEMA)
QUICK = ("--device", "cpu", "--json", "--set", "epochs=2")


def faults(metrics: dict) -> list[str]:
    return [f"{list(e.absolute_path)}: {e.message[:120]}" for e in CHECK.iter_errors(metrics)]


@pytest.fixture
def measured(call_cli, tmp_path):
    """Runs a command and returns its object, checked to be that of `metrics.json`."""

    def run(command: str, *arguments: object) -> dict:
        done = call_cli(command, *arguments, "--out", tmp_path / command, *QUICK)
        assert done.status == 0, done.stderr
        printed = json.loads(done.stdout)
        kept = json.loads((tmp_path / command / "metrics.json").read_text(encoding="utf-8"))
        assert printed == kept
        assert printed["seconds"][command] <= printed["seconds"]["total"]
        assert printed["peak_memory_mib"] > 0
        return printed

    return run


@pytest.fixture
def arrays(tmp_path):
    """Enough samples that every group is in the test split."""
    return array_folder(tmp_path / "arrays", **features(n=240))


def test_the_schema_itself_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def test_a_ranking_and_its_evaluation(measured, arrays, call_cli, tmp_path):
    found = measured("rank", arrays)
    assert faults(found) == []
    assert {"somers_d", "tau_b", "published", "buckets", "stages"} <= set(found["ranking"])
    done = call_cli(
        "evaluate", tmp_path / "rank", arrays, "--seeds", 2, "--device", "cpu", "--json"
    )
    assert done.status == 0, done.stderr
    evaluated = json.loads(done.stdout)
    assert faults(evaluated) == []
    assert evaluated["ranking"]["pd"]["n"] == 2


def test_a_ranking_without_attributes(measured, tmp_path):
    found = measured("rank", folder(tmp_path / "pets"))
    assert faults(found) == []
    assert "somers_d" not in found["ranking"]


def test_a_model_and_its_evaluation(measured, arrays, call_cli, tmp_path):
    found = measured("debias", arrays, "--method", "sebra", "--min-group", 1)
    assert faults(found) == []
    assert {"ranking", "evaluation", "selection"} <= set(found)
    scores = found["evaluation"]
    assert {"id_accuracy", "average", "worst_group", "worst_group_name", "gaps", "average_gap",
            "groups", "cues"} <= set(scores)  # fmt: skip
    assert len(scores["groups"]) == 4
    done = call_cli("evaluate", tmp_path / "debias", arrays, "--device", "cpu", "--json")
    assert done.status == 0, done.stderr
    assert faults(json.loads(done.stdout)) == []


def test_a_model_without_attributes(measured, tmp_path):
    found = measured("debias", folder(tmp_path / "pets", n=10), "--method", "erm")
    assert faults(found) == []
    assert "worst_group" not in found["evaluation"]


GOOD = {
    "version": "0.1.0",
    "seconds": {"rank": 1.5, "total": 2},
    "peak_memory_mib": 300.5,
    "ranking": {
        "somers_d": 0.5, "tau_b": None, "pd": -3.0, "buckets": 4, "trust": 0.7,
        "stages": [{"name": "stage_1", "given": {"background": 0.9, "object": None}}],
    },
    "evaluation": {
        "id_accuracy": 95.0, "average": 80.0, "worst_group": 20.0,
        "worst_group_name": "cat, place=sea", "gaps": {"place": -40.0}, "average_gap": -40.0,
        "cues": {"label": 80.0},
        "groups": [
            {"name": "cat, place=sea", "class": "cat", "values": {"place": "sea"},
             "alignment": {"place": "conflicting"}, "n_test": 50, "n_train": 3, "accuracy": 20.0,
             "small": False},
        ],
    },
}  # fmt: skip


def test_one_run_and_several_seeds_are_accepted():
    assert faults(GOOD) == []
    other = copy.deepcopy(GOOD)
    other["evaluation"]["worst_group_name"] = "dog, place=land"
    joined = {"version": "0.1.0", **mean_std([GOOD, other])}
    assert joined["evaluation"]["worst_group"] == {"mean": 20.0, "std": 0.0, "n": 2}
    assert faults(joined) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 1),
        (("seconds",), {"rank": 1.0}),
        (("seconds", "rank"), -1.0),
        (("peak_memory_mib",), "much"),
        (("ranking", "somers_d"), 53.0),
        (("ranking", "somers_d"), "high"),
        (("ranking", "buckets"), 2.5),
        (("ranking", "stages"), [{"name": "stage_1"}]),
        (("evaluation", "id_accuracy"), 101.0),
        (("evaluation", "id_accuracy"), {"mean": 95.0, "std": 1.0}),
        (("evaluation", "id_accuracy"), {"mean": 950.0, "std": 1.0, "n": 3}),
        (("evaluation", "gaps"), {"place": -140.0}),
        (("evaluation", "worst_group_name"), 3),
        (("evaluation", "groups", 0, "accuracy"), -1.0),
        (("evaluation", "groups", 0, "alignment"), {"place": "aslant"}),
        (("evaluation", "groups", 0), {"name": "cat"}),
        (("notes",), "text"),
    ],
    ids=lambda v: "-".join(map(str, v)) if isinstance(v, tuple) else str(v)[:20],
)
def test_what_is_wrong_is_refused(path, value):
    wrong = copy.deepcopy(GOOD)
    at = wrong
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert len(faults(wrong)) >= 1


@pytest.mark.parametrize("key", ["version", "seconds"])
def test_what_every_command_knows_must_be_there(key):
    assert faults({k: v for k, v in GOOD.items() if k != key}) != []
