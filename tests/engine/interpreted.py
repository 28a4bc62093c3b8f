"""Runs a test file as a script under Triton's interpreter, which computes kernels on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCES = TESTS.parent / "src"


def run_interpreted(file: str) -> str:
    """What the file prints; whether to interpret is decided when Triton is imported."""
    path = os.pathsep.join(map(str, (SOURCES, TESTS)))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    command = [sys.executable, file]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if "only 0-dimensional arrays" in done.stderr:
        pytest.skip("the interpreter of this Triton is too old for this NumPy")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
