"""A small share of `make soak`: a few kills and a few runs, each driver in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments",
    [("soak.kills", "--kills", "1", "--names", "lff"), ("soak.growth", "--runs", "6")],
)
def test_soak(arguments, repo_root):
    paths = os.pathsep.join(str(repo_root / name) for name in ("src", "tests"))
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
