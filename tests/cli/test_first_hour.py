"""What a first hour of use stumbles over is said in a line, at once."""

from __future__ import annotations

import io
import os
import re
import signal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import miniatures
import sebra
from sebra.cli.main import run
from sebra.cli.options import unfinished
from sebra.cli.output import Bars
from sebra.engine import packing
from sebra.engine.session import STATE, Session
from sebra.errors import Interrupted, stop
from sebra.measuring.groups import score
from sebra.samples.open import open_samples
from sebra_tools.leakage import leakage, leakage_note

FAST = ["--device", "cpu", "--set", "epochs=1"]


@pytest.fixture
def folder(tmp_path):
    return miniatures.folder(tmp_path / "pictures", n=8)


def test_without_weights_the_light_way_is_taken_and_what_to_do_is_said(call_cli, tmp_path):
    for c, name in enumerate(("cat", "dog")):
        for i in range(8):
            path = tmp_path / "large" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            miniatures.picture(i, (100, 100), tint=c).save(path)
    done = call_cli("rank", tmp_path / "large", *FAST, "--out", "run")
    assert done.status == 0, done.stderr
    assert "fixed random features instead" in done.stderr
    for way in ("--weights FILE", "HF_ENDPOINT", "--weights none"):
        assert way in done.stderr


def test_marks_that_were_applied_are_counted(call_cli, folder, tmp_path):
    (tmp_path / "marks.csv").write_text(
        "id,mark,label\ncat/000.png,drop,\ncat/001.png,relabel,dog\ncat/002.png,keep,\n"
    )
    done = call_cli("rank", folder, *FAST, "--exclude", tmp_path / "marks.csv", "--out", "run")
    assert "--exclude: 1 samples left out, 1 with another label" in done.stderr


def test_a_run_of_other_data_is_not_overwritten(call_cli, folder, tmp_path):
    other = miniatures.folder(tmp_path / "other", n=8)
    assert call_cli("rank", folder, *FAST, "--out", "run").status == 0
    done = call_cli("rank", other, *FAST, "--out", "run")
    assert done.status == 2
    assert f"holds a run of {folder}" in done.stderr
    assert call_cli("rank", folder, *FAST, "--out", "run").status == 0


def stopped(folder, command, **given):
    """A run that was stopped before its first epoch: all there is, is what it was asked."""
    session = Session(folder / "checkpoint", {"command": command, "version": "1", **given})
    session._file.parent.mkdir(parents=True)
    with pytest.raises(Interrupted, match="go on with --resume"):
        session._handle(signal.SIGTERM, None)


def test_a_stopped_run_knows_its_data_and_options(tmp_path):
    asked = {"seed": 3, "attributes": ["a", "b"], "overrides": ["lr=1"], "tune_seconds": 9.0}
    stopped(tmp_path / "run", "audit", data="photos", content="known later", **asked)
    found = unfinished("audit", str(tmp_path / "run"), resume=True)
    assert found == {
        "data": "photos",
        "seed": 3,
        "attributes": "a,b",
        "set_": ["lr=1"],
        "tune_seconds": 9.0,
        "tune": True,
    }


def test_a_run_is_gone_on_with_without_naming_its_data(call_cli, folder, tmp_path):
    identity = {"data": str(folder), "seed": 5, "device": "cpu", "mode": "auto"}
    stopped(tmp_path / "run", "rank", method="sebra", overrides=["epochs=1"], **identity)
    saved = packing.load(tmp_path / "run" / "checkpoint" / STATE)[1]
    saved["version"] = sebra.__version__
    packing.save(tmp_path / "run" / "checkpoint" / STATE, {"done": {}, "current": None}, saved)
    done = call_cli("rank", "--resume", "--out", tmp_path / "run")
    assert done.status == 0, done.stderr
    assert "seed = 5" in (tmp_path / "run" / "config.toml").read_text()


def test_without_data_and_without_a_stopped_run_it_is_said(call_cli, tmp_path):
    assert "Missing argument 'DATA'" in call_cli("audit").stderr
    done = call_cli("audit", "--resume", "--out", tmp_path / "new")
    assert done.status == 2
    assert "no unfinished run" in done.stderr
    stopped(tmp_path / "run", "rank", data="photos")
    assert "holds an unfinished rank" in call_cli("audit", "--resume", "--out",
                                                  tmp_path / "run").stderr  # fmt: skip


def test_help_says_whole_sentences(call_cli):
    said = call_cli("--help").stdout
    assert "..." not in said.split("Commands")[1]
    assert "what most" in said


def test_an_empty_class_folder_is_named(folder, caplog):
    (folder / "bird").mkdir()
    open_samples(str(folder))
    assert f"{folder / 'bird'}: class folder without images" in caplog.text


def test_a_leak_names_the_copy_in_the_test_split():
    table = pd.DataFrame(
        {
            "text": ["same", "same", "same", "same", "a", "b"],
            "label": list("xxxyyy"),
            "id": ["t0", "t1", "t2", "copy", "t4", "t5"],
            "split": ["train", "train", "train", "test", "train", "train"],
        }
    )
    from sebra.samples.objects import as_data

    found = leakage(open_samples(as_data(table)))
    assert found["examples"][0][:2] == ["t0", "copy"]
    assert "(first: t0 = copy = t1)" in leakage_note(found)


def test_without_attributes_there_is_no_figure_named_id(folder):
    samples = open_samples(str(folder))
    rows = samples.rows("train")
    summary = score(samples, rows, np.zeros(len(rows), dtype=np.int64)).summary()
    assert list(summary) == ["average"]


def test_a_message_under_a_bar_stands_on_a_line_of_its_own(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    bars = Bars()
    bars.start("decode train", 10)
    bars.advance(5)
    bars.message("something to know")
    bars.finish()
    plain = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n")
    assert "sebra: something to know" in plain.split("\n")


def test_a_stop_inside_a_library_that_makes_another_error_of_it_is_a_stop(monkeypatch, capsys):
    """NumPy says "not a valid format" where its own Python code was stopped by SIGTERM."""

    def stopped(*_args, **_more):
        try:
            stop(signal.SIGTERM, None)
        except BaseException as error:
            raise ValueError("is not a valid PEP 3118 buffer format string") from error

    monkeypatch.setattr("typer.main.get_command", lambda _: SimpleNamespace(main=stopped))
    assert run(["rank", "demo"]) == 143
    assert "interrupted; run the same command with --resume" in capsys.readouterr().err
