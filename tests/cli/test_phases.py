"""Where the time of a command goes: every second of it belongs to a named phase."""

from __future__ import annotations

import json

import pytest

from sebra.runs import meter

DATA = "demo?n=120"
SHORT = 0.05  # without its start a command takes next to no time


def phases(printed: str, least: float = 0.0) -> set[str]:
    """The names of the phases, which add up to the whole command; `least`: seconds it may lack."""
    seconds = json.loads(printed)["seconds"]
    total = seconds.pop("total")
    assert sum(seconds.values()) >= total - max(least, 0.02 * total)
    assert sum(seconds.values()) <= total + 0.02  # no second counts twice
    return set(seconds)


@pytest.mark.slow
def test_the_seconds_of_a_process_begin_with_its_start(cli, tmp_path):
    out = tmp_path / "run"
    done = cli("debias", DATA, "--method", "erm", "--device", "cpu", "--out", out, "--json")
    assert done.status == 0, done.stderr
    assert {"start", "open", "debias", "evaluate"} <= phases(done.stdout)
    kept = json.loads((out / "metrics.json").read_text())["seconds"]
    assert kept["total"] == json.loads(done.stdout)["seconds"]["total"]
    assert kept["start"] > 0.5


@pytest.fixture
def printed(call_cli, monkeypatch):
    """What a command prints that began just now, though this process is older."""
    monkeypatch.setattr(meter, "_process_seconds", lambda: 0.0)

    def run(*arguments):
        done = call_cli(*arguments, "--json")
        assert done.status == 0, done.stderr
        return done.stdout

    return run


def test_the_seconds_of_an_audit_belong_to_phases(printed, tmp_path):
    done = printed("audit", DATA, "--device", "cpu", "--out", tmp_path / "run")
    found = phases(done, SHORT)
    assert {"start", "open", "rank", "measure", "controls", "write", "report"} <= found


def test_commands_on_a_finished_run_name_their_phases_too(printed, tmp_path):
    run = tmp_path / "run"
    options = ("--device", "cpu", "--set", "epochs=1", "--out", run)
    printed("debias", DATA, "--method", "stages", *options)
    for command, names in (
        (["evaluate", run, DATA], {"start", "open", "evaluate"}),
        (["predict", run, DATA], {"start", "open", "predict", "write"}),
        (["report", run], {"start", "report"}),
    ):
        assert phases(printed(*command), SHORT) == names
