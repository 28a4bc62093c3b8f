"""Verdicts beside a run: shown, carried over, acted on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from finished import ranked_run
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import RunFolder
from sebra.samples.verdicts import VERDICTS, Verdicts
from sebra.workflows.debias import DebiasOptions, check_options
from sebra.workflows.verdicts import (
    carry_over,
    judged,
    shortcuts_alone,
    verdicts_of,
    write_patterns,
)

FIRST = "cat/000.png"


def say(run: RunFolder, **patterns: str) -> Path:
    said = verdicts_of(run)
    for name, verdict in patterns.items():
        said.say({"kind": "patterns", "key": name, "entry": {"verdict": verdict, "note": "seen"}})
    said.say({"kind": "suspects", "key": FIRST, "entry": {"verdict": "wrong"}})
    said.save(run.path / VERDICTS)
    return run.path / VERDICTS


def test_a_run_without_verdicts_has_none_and_says_what_they_would_be_of(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    said = verdicts_of(run)
    assert said.patterns == {}
    assert said.of["run"] == str(run.path)
    assert said.of["data"].endswith("photos")


def test_debias_acts_on_what_was_called_a_shortcut_alone(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    file = say(run, stage_1="meant", stage_2="shortcut")
    ranking, said = shortcuts_alone(str(file), None)
    assert ranking.stages == ["stage_2"]
    assert said == "verdicts: 1 pattern called a shortcut, 1 left alone"
    file = say(ranked_run(tmp_path), stage_1="unsure")
    ranking, said = shortcuts_alone(str(file), None)
    assert ranking.stages == []
    assert "1 of them without a verdict" in said


def test_verdicts_find_their_ranking_wherever_the_file_was_exported_to(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    elsewhere = tmp_path / "downloads" / "verdicts.json"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(say(run, stage_1="shortcut").read_bytes())
    assert judged(str(elsewhere), None)[1].stages == ["stage_1", "stage_2"]
    assert judged(str(elsewhere), str(run.path))[1].stages == ["stage_1", "stage_2"]


def test_verdicts_on_another_ranking_are_refused(tmp_path: Path) -> None:
    file = say(ranked_run(tmp_path), stage_1="shortcut")
    other = ranked_run(tmp_path, seed=1)
    with pytest.raises(UsageError, match="about a ranking that is not here"):
        judged(str(file), str(other.path))


def test_a_new_ranking_takes_over_what_was_said_of_the_same_patterns(tmp_path: Path) -> None:
    file = say(ranked_run(tmp_path), stage_1="shortcut", stage_2="meant")
    table = Ranking.load(ranked_run(tmp_path, seed=1).path).table
    now = ranked_run(tmp_path, seed=1)
    swapped = table.rename(columns={"stage_1": "stage_2", "stage_2": "stage_1"})
    Ranking(swapped).save(now.path / "ranking.parquet")
    found = carry_over(judged(str(file), None), now)
    assert {k: v["verdict"] for k, v in found.items()} == {
        "stage_1": "meant",
        "stage_2": "shortcut",
    }
    kept = Verdicts.load(now.path / VERDICTS)
    assert kept.of == verdicts_of(now).of
    assert kept.suspects == {FIRST: {"verdict": "wrong"}}


def test_report_shows_the_verdicts(tmp_path: Path, call_cli: Callable[..., object]) -> None:
    run = ranked_run(tmp_path)
    say(run, stage_1="shortcut")
    done = call_cli("report", run.path)
    assert done.status == 0
    assert "stage_1: called shortcut (seen)" in done.stdout
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert 'data-verdict="shortcut" aria-pressed="true"' in page
    assert page.count('data-verdict="shortcut" aria-pressed="true"') == 1
    assert page.count('data-verdict="shortcut" aria-pressed="false"') == 1


def test_a_method_without_a_ranking_cannot_act_on_verdicts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--verdicts: erm uses no ranking"):
        check_options(DebiasOptions("erm", verdicts="v.json"))
    with pytest.raises(UsageError, match="--rank-method"):
        check_options(DebiasOptions("auto", verdicts="v.json", rank_method="peel"))


def test_patterns_say_their_verdict(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    ranking = Ranking.load(run.path)
    ranking.details["patterns"] = [{"chance": 0.001}, {"chance": 0.002}]
    write_patterns(run, ranking, {"stage_2": {"verdict": "shortcut"}})
    found = json.loads((run.path / "patterns.json").read_text(encoding="utf-8"))["patterns"]
    assert [p["verdict"] for p in found] == ["unsure", "shortcut"]
