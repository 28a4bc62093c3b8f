"""Conditions for a build: what holds, what fails, and how it is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from finished import ranked_run
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import RunFolder
from sebra.samples.verdicts import VERDICTS
from sebra.workflows.verdicts import verdicts_of
from sebra_tools.check import Conditions, check, conditions_of

from .test_compare import predictions


def say(run: RunFolder, kind: str = "patterns", **verdicts: str) -> RunFolder:
    said = verdicts_of(run)
    for key, verdict in verdicts.items():
        said.say({"kind": kind, "key": key, "entry": {"verdict": verdict}})
    said.save(run.path / VERDICTS)
    return run


def found(run: RunFolder, name: str, limit: float, **more: Any) -> tuple[float | None, bool]:
    nothing = dict.fromkeys(("unreviewed", "returned"))
    rows = check(run, Conditions(**{**nothing, name: limit}), **more)["conditions"]
    assert [row["condition"] for row in rows] == [name]
    return rows[0]["found"], rows[0]["holds"]


def test_patterns_without_a_verdict(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    assert found(run, "unreviewed", 0) == (2, False)
    assert found(run, "unreviewed", 2) == (2, True)
    say(run, stage_1="shortcut", stage_2="unsure")
    assert found(run, "unreviewed", 0) == (0, True)


def test_the_largest_drop_of_plain_training_and_what_was_called_meant(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    assert found(run, "largest_drop", 54) == (55.0, False)
    assert found(run, "largest_drop", 55) == (55.0, True)
    say(run, stage_1="meant", stage_2="meant")
    assert found(run, "largest_drop", 0) == (0.0, True)


def test_the_drop_and_the_worst_group_of_a_model(tmp_path: Path) -> None:
    run = ranked_run(tmp_path, n=90, stages=1)
    wrong = np.arange(180) % 3 == 0  # it fails whoever breaks the pattern
    model = predictions(tmp_path / "mine.csv", str(tmp_path / "photos"), wrong)
    assert found(run, "largest_drop", 20, predictions=model) == (100.0, False)
    assert found(run, "worst_group", 60, predictions=model) == (0.0, False)
    fair = predictions(tmp_path / "fair.csv", str(tmp_path / "photos"), wrong & False)
    assert found(run, "largest_drop", 20, predictions=fair) == (0.0, True)
    assert found(run, "worst_group", 60, predictions=fair) == (100.0, True)


def test_what_cannot_be_measured_does_not_hold(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    assert found(run, "worst_group", 10) == (None, False)
    (run.path / "patterns.json").unlink()
    assert found(run, "largest_drop", 100) == (None, False)


def test_suspects_that_nobody_called_right(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    assert found(run, "suspects", 0.1) == (0.2, False)
    say(run, "suspects", **{"cat/000.png": "right", "cat/005.png": "right", "dog/000.png": "wrong"})
    assert found(run, "suspects", 0.1) == (0.1, True)


def test_with_a_baseline_only_what_is_new_counts(tmp_path: Path) -> None:
    before = ranked_run(tmp_path, stages=1)
    now = ranked_run(tmp_path, stages=2, seed=1)
    table = Ranking.load(now.path).table
    table.loc[1, "noise"] = 0.9
    Ranking(table).save(now.path / "ranking.parquet")
    assert found(now, "unreviewed", 0, baseline=str(before.path)) == (1, False)
    assert found(now, "suspects", 0.1, baseline=str(before.path)) == (0.05, True)
    assert found(before, "unreviewed", 0, baseline=str(before.path)) == (0, True)
    assert found(before, "largest_drop", 0, baseline=str(before.path)) == (0.0, True)


def test_a_shortcut_that_came_back(tmp_path: Path) -> None:
    before = say(ranked_run(tmp_path, stages=1), stage_1="shortcut")
    now = ranked_run(tmp_path, stages=2, seed=1)
    assert found(now, "returned", 0) == (0, True)
    assert found(now, "returned", 0, baseline=str(before.path)) == (1, False)
    file = str(before.path / VERDICTS)
    assert found(now, "returned", 0, verdicts=file) == (1, False)
    assert found(now, "unreviewed", 0, verdicts=file) == (1, False)  # the other one
    photos = str(tmp_path / "photos")
    fair = predictions(tmp_path / "fair.csv", photos, np.zeros(20, dtype=bool))
    assert found(now, "returned", 0, verdicts=file, predictions=fair) == (0, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sebra.toml", "[check]\nlargest_drop = 15\nsuspects = 0.02\n"),
        ("pyproject.toml", "[tool.sebra.check]\nlargest_drop = 15\nsuspects = 0.02\n"),
    ],
)
def test_conditions_come_from_a_file_and_options_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert conditions_of(None, {"suspects": None}) == Conditions(15, 0, 0.02, None, 0)
    assert conditions_of(None, {"suspects": 0.5}).suspects == 0.5
    assert conditions_of(name, {}).largest_drop == 15


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[check]\nbiggest_drop = 1\n", "'biggest_drop' is not a condition"),
        ("[check]\nsuspects = 'few'\n", "is not a number"),
        ("[check\n", "not TOML"),
        ("[other]\na = 1\n", "holds no conditions"),
    ],
)
def test_wrong_conditions_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        conditions_of(str(tmp_path / "my.toml"), {})


def test_the_command_leaves_with_1_and_writes_junit_and_markdown(
    tmp_path: Path, call_cli: Callable[..., Any]
) -> None:
    run = ranked_run(tmp_path)
    xml, text = tmp_path / "out" / "check.xml", tmp_path / "out" / "check.md"
    done = call_cli("check", run.path, "--suspects", "0.5", "--junit", xml, "--markdown", text)
    assert done.status == 1
    assert "failed" in done.stdout
    suite = ElementTree.parse(xml).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    failed = suite.find("testcase[@name='unreviewed']/failure")
    assert failed is not None
    assert "stage_1, stage_2" in str(failed.get("message"))
    assert "| unreviewed | 0 | 2 | fails | stage_1, stage_2 |" in text.read_text(encoding="utf-8")
    done = call_cli("check", run.path, "--unreviewed", "2", "--json")
    assert done.status == 0
    assert json.loads(done.stdout)["passed"] is True
    assert call_cli("check", run.path, "--baseline", tmp_path / "none").status == 2


@pytest.mark.slow
def test_data_is_audited_first_and_a_baseline_tells_what_is_new(
    tmp_path: Path, call_cli: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(0)
    label = np.arange(600) % 2
    shown = np.where(rng.random(600) < 0.92, label, 1 - label)  # a shortcut that most follow
    x = rng.normal(size=(600, 12)).astype(np.float32)
    x[:, 0] += 4 * (2 * shown - 1)
    x[:, 1] += 1.2 * (2 * label - 1)
    np.savez(tmp_path / "toy.npz", X=x, y=label)
    first, again = tmp_path / "first", tmp_path / "again"
    assert call_cli("check", tmp_path / "toy.npz", "--out", first).status == 1
    say(RunFolder.open(str(first)), stage_1="meant")
    done = call_cli("check", tmp_path / "toy.npz", "--baseline", first, "--out", again)
    assert done.status == 0, done.stdout
    say(RunFolder.open(str(first)), stage_1="shortcut")
    done = call_cli("check", again, "--baseline", first)
    assert done.status == 1
    assert re.search(r"returned .*fails", done.stdout)
