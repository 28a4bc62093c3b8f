"""Evaluation sets unreadable pictures aside instead of giving up."""

from __future__ import annotations

import json

import miniatures
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
