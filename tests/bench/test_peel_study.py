"""The study of peeling."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from ranking.toys import images, noisy
from sebra.cli.main import run as cli
from sebra.engine.session import Session
from sebra.ranking.crossfit import HeadJudge, NetworkJudge
from sebra.ranking.peel import PeelConfig
from sebra_bench.studies.peel import by_stage, shorter, stage_means


def test_the_peel_study_sets_stages_beside_the_faithful_epochs(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = np.arange(800) % 2
    aligned = rng.random(800) > 0.1
    cue = np.where(aligned, y, 1 - y)
    x = rng.normal(size=(800, 6)).astype(np.float32)
    x[:, 0] = 6 * (cue - 0.5) + rng.normal(size=800) * 0.5
    x[:, 1] += 2 * y  # without a class to see, conflict would be error
    np.savez(tmp_path / "toy.npz", X=x, y=y, cue=cue)
    command = ["bench", "study", "peel", str(tmp_path / "toy.npz"), "--seeds", "1", "--json"]
    command += ["--set", "rank.least_noise=1"]
    assert cli([*command, "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)["peel"]["stages"]
    assert found[0]["given"]["cue"] > 0.9
    for name in ("peel.png", "peel.svg", "table.md"):
        assert (tmp_path / "run" / name).stat().st_size > 0
    text = (tmp_path / "run" / "table.csv").read_text(encoding="utf-8")
    assert "stage_1" in text
    assert "alignment of the model of each stage, epoch by epoch" in text
    assert "alignment of the faithful method, epoch by epoch" in text
    shown = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    first = next(line for line in shown.splitlines() if line.startswith("| stage 1 | cue |"))
    assert float(first.split("|")[3]) > 0.9  # from the first pass on
    assert "stage 2, refused" in shown


def test_an_attribute_that_nobody_breaks_has_no_curve(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    cue = np.where(rng.random(400) > 0.1, y, 1 - y)
    x = rng.normal(size=(400, 4)).astype(np.float32)
    x[:, 0] += 6 * (cue - 0.5)
    np.savez(tmp_path / "toy.npz", X=x, y=y, cue=cue, same=y)
    command = ["bench", "study", "peel", str(tmp_path / "toy.npz"), "--seeds", "1"]
    assert cli([*command, "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    shown = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    assert any(line.startswith("| same | –") for line in shown.splitlines())


@pytest.mark.parametrize("kind", ["heads", "networks"])
def test_ever_longer_training_ends_with_the_judge_of_the_ranker(kind):
    if kind == "heads":
        task, config = noisy(n=120), PeelConfig(folds=3)
        judge = HeadJudge(task, (config.penalty, config.penalty_contrast))
    else:
        task = images(n=30)
        config = PeelConfig(steps=16, folds=2, batch=10, optimizer="adam", flip=False)
        judge = NetworkJudge(task, Session(), config)
    weights = torch.ones(len(task)).double()
    alone = judge.tell_class(task.targets, weights)
    seen = [(at, j.tell_class(task.targets, weights)) for at, j in shorter(task, Session(), config)]
    epochs = [at for at, _ in seen]
    assert epochs == sorted(set(epochs))
    assert len(epochs) >= 3
    assert torch.allclose(seen[-1][1], alone, atol=1e-5)
    assert not torch.allclose(seen[0][1], alone, atol=1e-2)


def test_the_study_needs_attributes(tmp_path, capsys):
    y = np.arange(60) % 2
    np.savez(tmp_path / "bare.npz", X=np.random.default_rng(0).normal(size=(60, 3)), y=y)
    command = ["bench", "study", "peel", str(tmp_path / "bare.npz"), "--seeds", "1"]
    assert cli([*command, "--out", str(tmp_path / "run")]) == 2
    assert "no attribute columns" in capsys.readouterr().err


def test_stages_are_averaged_over_the_seeds_that_have_them():
    def row(*given: float | None) -> dict:
        stages = [{"name": f"stage_{k}", "given": {"a": g}} for k, g in enumerate(given, 1)]
        return {"ranking": {"stages": stages}}

    found = stage_means([row(1.0, 0.2), row(0.5), row(None)], ["a"])
    assert found[0] == {"name": "stage_1", "seeds": 3, "given": {"a": 0.75}}
    assert found[1] == {"name": "stage_2", "seeds": 1, "given": {"a": 0.2}}


def test_a_stage_has_the_curves_of_the_seeds_that_tried_it():
    def row(*stages: int) -> dict:
        return {"curve": [{"stage": k, "epoch": 1.0, "a": 0.5} for k in stages]}

    found = by_stage([row(1, 1, 2), row(1)])
    assert [[len(way["curve"]) for way in ways] for ways in found] == [[2, 1], [1]]
