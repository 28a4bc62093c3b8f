"""Evaluation sets unreadable pictures aside instead of giving up."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

import miniatures
from sebra.cli.main import run as cli
from sebra.debiasing.model import Model
from sebra.engine.networks import SMALL, NetworkSpec, build
from sebra.runs.folder import RunFolder


def test_an_unreadable_test_picture_is_left_out(call_cli, tmp_path):
    data = miniatures.split_folder(tmp_path / "pets")
    (data / "test" / "dog" / "003.jpg").write_bytes(b"no picture")
    spec = NetworkSpec(SMALL, (3, 16, 16), 2)
    network = build(spec, 0)
    run = RunFolder.create(str(tmp_path / "run"), "debias")
    run.write_config({"command": "debias"})
    Model(network, ("cat", "dog"), (spec,)).save(run.path)
    done = call_cli("evaluate", run.path, data, "--device", "cpu", "--json")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)["evaluation"]
    assert found["split"] == "test"
    assert {g["name"]: g["n_test"] for g in found["groups"]} == {"cat": 6, "dog": 5}


def test_unreadable_training_images_weigh_no_more_than_when_the_model_was_trained(tmp_path, capsys):
    """Evaluating opens no training image; the run's quarantine says which of them do not count."""
    rng = np.random.default_rng(0)
    rows = ["path,label,split,place"]
    for i in range(60):
        label, place = i % 2, (i // 2) % 2
        split = "train" if i < 40 else "test"
        pixels = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        if i < 30 and label == place == 0:
            (tmp_path / f"{i}.png").write_bytes(b"broken")
        rows.append(f"{i}.png,{label},{split},{place}")
    (tmp_path / "all.csv").write_text("\n".join(rows), encoding="utf-8")
    data, run = str(tmp_path / "all.csv"), str(tmp_path / "run")
    common = ["--min-group", "1", "--device", "cpu", "--json"]
    quick = ["--mode", "features", "--backbone", "random", "--set", "epochs=1"]
    assert cli(["debias", data, "--method", "erm", *quick, *common, "--out", run]) == 0
    trained = json.loads(capsys.readouterr().out)["evaluation"]
    assert cli(["evaluate", run, data, *common]) == 0
    found = json.loads(capsys.readouterr().out)["evaluation"]
    assert [g["n_train"] for g in found["groups"]] == [g["n_train"] for g in trained["groups"]]
    assert found["id_accuracy"] == trained["id_accuracy"]
    assert sum(g["n_train"] for g in found["groups"]) == 32
