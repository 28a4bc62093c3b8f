"""Every audit ends in found, nothing found, or cannot tell, with its reason."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from sebra.cli.main import run as cli
from sebra.ranking.controls import Controls
from sebra.ranking.ranking import Ranking
from sebra.workflows.verdict import verdict_of

GOOD = Controls((0.99,) * 10, (False,) * 20)
BLIND = Controls((0.6,) * 10, (False,) * 20)
LOUD = Controls((0.99,) * 10, (True,) * 10 + (False,) * 10)


def ranking(stages: int) -> Ranking:
    return Ranking(pd.DataFrame({f"stage_{k}": [0.9, 0.9, 0.9, 0.1] for k in range(stages)}))


@pytest.mark.parametrize(
    ("stages", "controls", "state"),
    [
        (1, GOOD, "found"),
        (1, None, "found"),
        (1, LOUD, "cannot tell"),
        (0, GOOD, "nothing found"),
        (0, BLIND, "cannot tell"),
        (0, None, "cannot tell"),
    ],
)
def test_the_state_follows_from_stages_and_controls(stages, controls, state):
    found = verdict_of(ranking(stages), True, controls)
    assert found["state"] == state
    assert found["reason"]


def test_too_few_samples_for_controls_are_said_to_be_too_few():
    assert "4 samples are too few" in verdict_of(ranking(1).only([]), True, None)["reason"]
    many = Ranking(pd.DataFrame({"rank": range(400)}))
    assert "too few" not in verdict_of(many, True, None)["reason"]


def test_a_method_without_patterns_cannot_tell():
    found = verdict_of(ranking(0), False, GOOD)
    assert found["state"] == "cannot tell"
    assert "--method peel" in found["reason"]


def test_an_audit_prints_and_keeps_its_verdict(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    x = rng.normal(size=(400, 8)) + 3 * y[:, None]
    np.savez(tmp_path / "x.npz", X=x.astype(np.float32), y=y)
    command = ["audit", str(tmp_path / "x.npz"), "--device", "cpu", "--out", str(tmp_path / "run")]
    assert cli([*command, "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["verdict"]["state"] in ("found", "nothing found", "cannot tell")
    assert metrics["ranking"]["controls"]["positive_trials"] >= 1
    assert metrics["seconds"]["controls"] > 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "would have been found" in page
