"""Where the time of a command goes: every second of it belongs to a named phase."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "phases"),
    [
        (
            ["audit", "demo?n=120"],
            {"start", "open", "rank", "measure", "controls", "write", "report"},
        ),
        (["debias", "demo?n=120", "--method", "erm"], {"start", "open", "debias", "evaluate"}),
    ],
    ids=["audit", "debias"],
)
def test_the_seconds_of_a_command_belong_to_phases(cli, tmp_path, command, phases):
    done = cli(*command, "--device", "cpu", "--out", tmp_path / "run", "--json")
    assert done.status == 0, done.stderr
    seconds = json.loads(done.stdout)["seconds"]
    total = seconds.pop("total")
    assert phases <= set(seconds)
    assert sum(seconds.values()) >= 0.98 * total
    assert sum(seconds.values()) <= total + 0.02  # no second counts twice
    kept = json.loads((tmp_path / "run" / "metrics.json").read_text())["seconds"]
    assert kept["total"] == total


@pytest.mark.slow
def test_commands_on_a_finished_run_name_their_phases_too(cli, tmp_path):
    run, data = tmp_path / "run", "demo?n=120"
    options = ["--device", "cpu", "--out", run, "--json"]
    assert cli("debias", data, "--method", "stages", "--set", "epochs=1", *options).status == 0
    for command, phases in (
        (["evaluate", run, data], {"start", "open", "evaluate"}),
        (["predict", run, data], {"start", "open", "predict", "write"}),
        (["report", run], {"start", "report"}),
    ):
        done = cli(*command, "--json")
        seconds = json.loads(done.stdout)["seconds"]
        total = seconds.pop("total")
        assert set(seconds) == phases
        assert sum(seconds.values()) >= 0.98 * total
