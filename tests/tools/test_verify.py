"""`sebra verify`: an untouched run passes, every kind of damage is found."""

from __future__ import annotations

import json
import os
import shutil
import time

import numpy as np
import pandas as pd
import pytest

import miniatures
from sebra.runs.folder import RunFolder
from sebra_tools.verify import verify


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A debias run with a ranking and a model, and its data."""
    from sebra.cli.main import run

    root = tmp_path_factory.mktemp("verify")
    data = miniatures.array_folder(root / "data", **miniatures.features(60))
    out = root / "run"
    asked = ("debias", data, "--device", "cpu", "--set", "epochs=2", "--out", out)
    assert run([str(a) for a in asked]) == 0
    return root


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path / "run"


def faults(run) -> str:
    return "\n".join(verify(RunFolder.open(str(run)))["faults"])


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def rewrite(file, change):
    found = json.loads(file.read_text(encoding="utf-8"))
    change(found)
    file.write_text(json.dumps(found), encoding="utf-8")


def reseal(run):
    from sebra.runs.seal import seal

    seal(run, RunFolder(run).read_config())


def other_ranks(run):
    table = pd.read_parquet(run / "ranking.parquet")
    table.assign(rank=table["rank"] * 2).to_parquet(run / "ranking.parquet")
    reseal(run)


def same_ids(run):
    table = pd.read_parquet(run / "ranking.parquet")
    table.assign(id=table["id"].iloc[0]).to_parquet(run / "ranking.parquet")
    reseal(run)


def fewer_rows(run):
    pd.read_parquet(run / "ranking.parquet").iloc[1:].to_parquet(run / "ranking.parquet")
    reseal(run)


def out_of_schema(run):
    rewrite(run / "metrics.json", lambda m: m.update(seconds="many"))
    reseal(run)


def other_seed(run):
    text = (run / "config.toml").read_text(encoding="utf-8")
    (run / "config.toml").write_text(text.replace("seed = 0", "seed = 1"), encoding="utf-8")


DAMAGE = {
    "a file is gone": (lambda r: (r / "history.parquet").unlink(), "history.parquet: is missing"),
    "a byte of the ranking": (lambda r: flip(r / "ranking.parquet", 40), "ranking.parquet"),
    "a byte of the model": (lambda r: flip(r / "model.safetensors", -3), "model.safetensors"),
    "a byte of the figures": (lambda r: flip(r / "metrics.json", 30), "metrics.json"),
    "no checksums": (lambda r: (r / "checksums.json").unlink(), "so nothing can be verified"),
    "another configuration": (other_seed, "does not give the id"),
    "figures outside the schema": (out_of_schema, "seconds"),
    "fewer rows": (fewer_rows, "are others or have other labels"),
    "ranks with gaps": (other_ranks, "are not 0, 1, 2"),
    "verdicts cut short": (
        lambda r: (r / "verdicts.json").write_text('{"format": 1'),
        "verdicts.json: cannot be read as verdicts",
    ),
    "an id twice": (same_ids, "an id occurs twice"),
    "not finished": (lambda r: (r / "checkpoint").mkdir(), "not finished"),
    "model.json of another model": (
        lambda r: rewrite(r / "model.json", lambda m: m.update(classes=["x", "y"])),
        "model.json: is not what the run wrote",
    ),
}


def test_a_run_that_nobody_touched_is_as_it_was_written(run, call_cli):
    assert faults(run) == ""
    done = call_cli("verify", run)
    assert done.status == 0
    assert "as it was written" in done.stdout


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(run, name):
    damage, words = DAMAGE[name]
    damage(run)
    assert words in faults(run)


def test_other_data_is_found(made, run):
    labels = np.load(made / "data" / "y.npy")
    try:
        np.save(made / "data" / "y.npy", 1 - labels)
        assert "have other labels" in faults(run)
    finally:
        np.save(made / "data" / "y.npy", labels)


def test_data_that_was_written_again_is_told_of(made, run):
    values = made / "data" / "X.npy"
    old = values.stat()
    try:
        os.utime(values, (old.st_atime, time.time() + 10))
        notes = " ".join(verify(RunFolder.open(str(run)))["notes"])
        assert f"written after the run (first: {values})" in notes
    finally:
        os.utime(values, (old.st_atime, old.st_mtime))


def test_the_status_says_that_something_is_wrong(run, call_cli):
    (run / "quarantine.csv").unlink()
    done = call_cli("verify", run, "--json")
    assert done.status == 1
    assert json.loads(done.stdout)["faults"] == ["quarantine.csv: is missing"]


def test_figures_that_were_changed_are_told_of_where_they_are_read(run, caplog):
    rewrite(run / "metrics.json", lambda m: m.update(samples=7))
    RunFolder.open(str(run)).read_metrics()
    assert "metrics.json was changed since the run wrote it" in caplog.text
