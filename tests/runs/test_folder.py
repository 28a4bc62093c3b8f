"""The run folder: whole files or none, and folders that are not ours left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from sebra.errors import SebraError, UsageError
from sebra.runs.folder import RunFolder, clean, to_toml
from sebra.samples.table import Fault


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(str(tmp_path / "run"), "rank")


def names(folder: RunFolder) -> list[str]:
    return sorted(p.name for p in folder.path.iterdir())


def test_creates_nested_folders_and_leaves_no_trace_of_the_probe(tmp_path):
    made = RunFolder.create(str(tmp_path / "a" / "b"), "rank")
    assert names(made) == []


def test_without_a_name_every_run_gets_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [RunFolder.create(None, "rank") for _ in range(3)]
    paths = [folder.path for folder in folders]
    assert len(set(paths)) == 3
    assert all(p.parent.name == "runs" and p.name.startswith("rank-") for p in paths)


def test_a_run_that_wrote_nothing_leaves_no_folder(tmp_path):
    (tmp_path / "a").mkdir()
    made = RunFolder.create(str(tmp_path / "a" / "b" / "c"), "rank")
    assert made.path.is_dir()
    del made
    assert [p.name for p in tmp_path.rglob("*")] == ["a"]
    written = RunFolder.create(str(tmp_path / "a" / "b" / "c"), "rank").write_text("x", "kept")
    assert written.read_text(encoding="utf-8") == "kept"


def test_what_a_killed_writer_left_is_removed_and_that_of_a_living_one_is_not(tmp_path):
    gone, here = tmp_path / ".metrics.json.4194305.tmp", tmp_path / f".x.{os.getppid()}.tmp"
    gone.touch()
    RunFolder.create(str(tmp_path), "rank")
    assert not gone.exists()
    here.touch()
    with pytest.raises(UsageError, match="holds other files"):
        RunFolder.create(str(tmp_path), "rank")
    assert here.exists()


def test_metrics_of_an_earlier_run_go_with_the_first_file_of_the_next(folder):
    folder.write_config({"seed": 0})
    folder.write_metrics({"seed": 0})
    folder.write_config({"seed": 1})
    assert not folder.has("metrics.json")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[1]", "\x00"])
def test_damaged_metrics_and_configurations_are_refused_by_name(folder, text):
    folder.write_config({})
    for name in ("metrics.json", "config.toml"):
        folder.write_text(name, text)
    with pytest.raises(UsageError, match=r"metrics\.json: not"):
        folder.read_metrics()
    if text not in ("", "[1]"):
        with pytest.raises(UsageError, match=r"config\.toml: not TOML"):
            folder.read_config()


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(UsageError, match="holds other files"):
        RunFolder.create(str(tmp_path), "rank")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    for out in ("taken", "taken/inside"):
        with pytest.raises(UsageError, match="--out: cannot write to"):
            RunFolder.create(str(tmp_path / out), "rank")


def test_an_unwritable_place_is_refused_before_any_work(tmp_path, monkeypatch):
    place = tmp_path / "locked"
    place.mkdir()
    place.chmod(0o500)
    if os.access(place, os.W_OK):  # root may write anywhere: let the probe itself fail

        def refuse(self, data):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    with pytest.raises(UsageError, match=r"cannot write to .* \(Permission denied\)"):
        RunFolder.create(str(place), "rank")


def test_an_earlier_run_may_be_written_again(folder):
    folder.write_config({"command": "rank"})
    assert RunFolder.create(str(folder.path), "rank").path == folder.path
    assert RunFolder.open(str(folder.path)).path == folder.path


def test_resuming_begins_at_the_beginning_where_nothing_was_saved(tmp_path, monkeypatch):
    """A job that is started again by a cluster always has the same options."""
    monkeypatch.chdir(tmp_path)
    assert RunFolder.create(None, "rank", resume=True).path.name.startswith("rank-")
    out = tmp_path / "empty"
    for _ in range(2):
        assert RunFolder.create(str(out), "rank", resume=True).path == out
    (out / ".ranking.parquet.4194305.tmp").parent.mkdir(exist_ok=True)
    (out / ".ranking.parquet.4194305.tmp").write_bytes(b"half")
    assert RunFolder.create(str(out), "rank", resume=True).path == out


HOLD = """
import sys, time
from sebra.runs.folder import RunFolder
folder = RunFolder.create(sys.argv[1], "rank")
print("held", flush=True)
time.sleep(60)
"""


def test_of_two_processes_with_one_folder_the_second_is_refused(tmp_path):
    out = str(tmp_path / "run")
    first = subprocess.Popen([sys.executable, "-c", HOLD, out], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "held\n"
        for resume in (False, True):
            with pytest.raises(UsageError, match="is being written by another process"):
                RunFolder.create(out, "rank", resume)
    finally:
        first.kill()
        first.wait()
    assert RunFolder.create(out, "rank").path == Path(out)


def test_one_process_may_write_a_folder_again(tmp_path):
    first = RunFolder.create(str(tmp_path / "run"), "rank")
    assert RunFolder.create(str(tmp_path / "run"), "rank").path == first.path


def test_resuming_without_a_name_takes_the_latest_unfinished_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for age, name in ((300, "rank-old"), (100, "rank-new"), (10, "debias-newest")):
        place = tmp_path / "runs" / name / "checkpoint"
        place.mkdir(parents=True)
        os.utime(place, (1e9 - age, 1e9 - age))
    (tmp_path / "runs" / "rank-finished").mkdir()
    assert RunFolder.create(None, "rank", resume=True).path.name == "rank-new"


@pytest.mark.parametrize("what", ["absent", "empty"])
def test_what_is_no_run_cannot_be_opened(tmp_path, what):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="not a run folder"):
        RunFolder.open(str(tmp_path / what))


def test_a_write_that_fails_leaves_the_old_file_and_no_half_one(folder, monkeypatch):
    folder.write_text("report.html", "old")

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(SebraError, match="No space left"):
            folder.write_text("report.html", "new")
    assert (folder.path / "report.html").read_text(encoding="utf-8") == "old"
    assert names(folder) == ["report.html"]


def test_a_history_that_cannot_be_written_leaves_the_old_one(folder, monkeypatch):
    folder.write_history([{"epoch": 0, "label": "a", "loss": 1.0}])

    def fails(table, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(parquet, "write_table", fails)
    with pytest.raises(SebraError, match="disk full"):
        folder.write_history([{"epoch": 1, "label": "a", "loss": 0.5}])
    assert names(folder) == ["history.parquet"]
    table = pd.read_parquet(folder.path / "history.parquet")
    assert table["loss"].tolist() == [1.0]


def test_metrics_are_plain_json_without_absent_figures(folder):
    metrics = {
        "version": "1", "seconds": {"total": 1.0},
        "a": np.float32(0.5), "n": np.int64(3), "gone": float("nan"), "yes": np.bool_(True),
        "nested": {"inf": float("inf"), "t": (1, 2), "none": None}, 5: "key",
    }  # fmt: skip
    folder.write_metrics(metrics)
    plain = {"a": 0.5, "n": 3, "yes": True, "nested": {"t": [1, 2], "none": None}, "5": "key"}
    expected = {"version": "1", "seconds": {"total": 1.0}, **plain}
    assert folder.read_metrics() == expected == json.loads(json.dumps(clean(metrics)))


def test_metrics_of_an_unfinished_run_are_refused(folder):
    with pytest.raises(UsageError, match="the run is not finished"):
        folder.read_metrics()


scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tables = st.dictionaries(keys, st.one_of(scalars, st.lists(st.text("aä\"\\\n'", max_size=4))))


@given(tables, tables)
def test_every_configuration_can_be_read_again(plain, settings):
    tomllib = pytest.importorskip("tomllib")
    config = {**plain, "settings": settings}
    assert tomllib.loads(to_toml(config)) == config


def test_the_configuration_leaves_out_what_is_not_set(folder):
    folder.write_config({"seed": 0, "preset": None, "settings": {"lam": None, "lr": 0.1}})
    assert folder.read_config() == {"seed": 0, "settings": {"lr": 0.1}}


def test_quarantine_keeps_ids_with_commas_and_quotes(folder):
    folder.write_quarantine([Fault('a,"b".jpg', "empty file"), Fault("c\nd.jpg", "ä")])
    table = pd.read_csv(folder.path / "quarantine.csv")
    assert table["id"].tolist() == ['a,"b".jpg', "c\nd.jpg"]
    assert table["reason"].tolist() == ["empty file", "ä"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "'"])
def test_quarantine_holds_no_formula(folder, start):
    folder.write_quarantine([Fault(f"{start}1+1", f"{start}cmd")])
    table = pd.read_csv(folder.path / "quarantine.csv")
    assert table.iloc[0].tolist() == [f"'{start}1+1", f"'{start}cmd"]


def test_names_that_are_not_utf8_are_escaped_in_every_file(folder):
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    folder.write_config({"data": name})
    folder.write_quarantine([Fault(name, "\ud800")])
    folder.write_metrics({"version": "1", "seconds": {"total": 1.0}, "data": name})
    assert folder.read_metrics()["data"] == "caf\\xe9"
    assert folder.read_config() == {"data": "caf\\xe9"}
    assert "caf\\xe9,\\ud800" in (folder.path / "quarantine.csv").read_text(encoding="utf-8")
