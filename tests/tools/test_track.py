"""Curves, figures and galleries arrive in TensorBoard's event file."""

from __future__ import annotations

import json

import pytest

from sebra.cli.main import run as cli
from sebra.errors import UsageError
from sebra_tools import track as tracking
from sebra_tools.track import numbers_of

pytest.importorskip("tensorboard")


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (where,) = {p.parent for p in folder.rglob("events.out.tfevents*")}
    found = EventAccumulator(str(where), size_guidance={"images": 0})
    found.Reload()
    return found


def test_a_ranking_is_tracked(tmp_path):
    folder = tmp_path / "run"
    command = ["rank", "demo?n=100", "--mode", "features", "--backbone", "random"]
    more = ["--device", "cpu", "--out", str(folder), "--track", "tensorboard", "--set", "epochs=3"]
    assert cli([*command, *more]) == 0
    found = events(folder)
    tags = found.Tags()
    assert {"learned/boat", "learned/plane", "loss"} <= set(tags["scalars"])
    learned = [e.value for e in found.Scalars("learned/boat")]
    assert learned == sorted(learned)
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    last = found.Scalars("final/ranking/somers_d")[-1].value
    assert last == pytest.approx(metrics["ranking"]["somers_d"], abs=1e-5)
    assert "boat/most spurious" in tags["images"]


def test_what_is_missing_is_said_first(tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    assert cli(["rank", "demo", "--track", "chalk", "--out", str(out)]) == 2
    assert "--track" in capsys.readouterr().err
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs the package wandb"):
        tracking.Tracker("wandb")
    assert not out.exists()


def test_only_finite_numbers_are_sent():
    metrics = {"a": {"b": 1.5, "c": None, "d": float("nan")}, "on": True, "text": "x", "n": 3}
    assert numbers_of(metrics) == {"a/b": 1.5, "n": 3.0}
