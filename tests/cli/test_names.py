"""Names of files that are not UTF-8, in a process whose output takes UTF-8 alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import miniatures
from conftest import REPO


def run(where, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "sebra", *arguments],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(REPO / "src"), "PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        check=False,
    )


def test_they_are_printed_written_and_resumed(tmp_path, call_cli):
    try:
        data = miniatures.folder(tmp_path / os.fsdecode(b"pets\xff"), n=8)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    (data / "cat").rename(data / os.fsdecode(b"cat\xfe"))
    checked = run(tmp_path, "data", "check", os.fsencode(data.name), "--quick")
    assert checked.returncode == 0, checked.stderr
    assert b"pets" in checked.stdout
    asked = ("rank", os.fsencode(data.name), "--device", "cpu", "--backbone", "random",
             "--set", "epochs=2", "--out", b"run\xff")  # fmt: skip
    done = run(tmp_path, *asked)
    assert done.returncode == 0, done.stderr
    for more in (("--resume",), ()):  # a run of the same data may be made again
        again = call_cli(*map(os.fsdecode, asked), *more)
        assert again.status == 0, again.stderr
    assert (tmp_path / os.fsdecode(b"run\xff") / "ranking.parquet").is_file()
