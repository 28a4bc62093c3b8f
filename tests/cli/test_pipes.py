"""A named pipe in the place of a file is refused: nobody may ever write into it."""

from __future__ import annotations

import os

import pytest

from sebra.cli.main import run

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@pytest.mark.parametrize(
    "command",
    [
        ("rank", "demo?n=200", "--exclude"),
        ("rank", "demo?n=200", "--method", "neurons", "--neurons"),
        ("debias", "demo?n=200", "--verdicts"),
    ],
    ids=["exclude", "neurons", "verdicts"],
)
def test_a_pipe_costs_one_line(command, tmp_path, capsys):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert run([*command, str(pipe), "--out", str(tmp_path / "run")]) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("sebra: ")]
    assert "is a pipe, not a file" in line
