"""The demo through the real command line: a newcomer's first look must show the bias."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.long)])
def test_demo_ranks_and_beats_plain_training(call_cli: Any, tmp_path: Path, seed: int) -> None:
    out = tmp_path / "demo"
    result = call_cli("demo", "--seed", str(seed), "--out", str(out), "--json")
    assert result.status == 0, result.stderr
    found = json.loads(result.stdout)
    erm, ours = (c["evaluation"] for c in found["comparisons"])
    assert found["ranking"]["somers_d"] >= 0.5
    assert ours["worst_group"] - erm["worst_group"] >= 15
    assert erm["cues"]["background"] > erm["cues"]["label"], "plain training must visibly cheat"
    assert found["verdict"]["state"] == "found"
    patterns = json.loads((out / "patterns.json").read_text(encoding="utf-8"))["patterns"]
    kinds = [pattern["words"][0]["kind"] for pattern in patterns]
    assert kinds == ["metadata background", "metadata companion"]
    assert "Where it sits" in (out / "report.html").read_text(encoding="utf-8")
    assert (out / "report.html").stat().st_size > 100_000
    assert (out / "model.safetensors").is_file()
    checked = call_cli("check", str(out), "--json")
    assert checked.status in (0, 1), checked.stderr
    assert json.loads(checked.stdout)["conditions"]
