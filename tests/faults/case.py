"""What a fault is: a name, what is expected, and a function that makes it and says what it saw."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import miniatures
from conftest import REPO, CliResult

QUICK = ("--device", "cpu", "--backbone", "random")


@dataclass(frozen=True)
class Fault:
    """One row of the table. `slow` ones run by `make faults` alone."""

    group: str
    name: str
    expected: str
    run: Callable[[Place], str]
    slow: bool


FAULTS: dict[str, Fault] = {}


def fault(
    group: str, name: str, expected: str, slow: bool = False
) -> Callable[[Callable[[Place], str]], Callable[[Place], str]]:
    """Registers a function that makes the fault, asserts what is expected, returns what it saw."""

    def register(function: Callable[[Place], str]) -> Callable[[Place], str]:
        assert name not in FAULTS, name
        FAULTS[name] = Fault(group, name, expected, function, slow)
        return function

    return register


class Place:
    """An empty folder with a cache of its own, and ways to run the command line in it."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path, self.patch = path, patch
        patch.setenv("SEBRA_CACHE", str(path / "cache"))
        patch.setenv("SEBRA_OFFLINE", "1")

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def pets(self, n: int = 6) -> Path:
        """Class folders of small pictures."""
        return miniatures.folder(self.path / "pets", n=n)

    def npz(self, n: int = 60) -> Path:
        file = self.path / "two.npz"
        np.savez(file, **miniatures.features(n))
        return file

    def run(self, *arguments: object) -> CliResult:
        """`sebra ARGUMENTS` in this process."""
        from sebra.cli.main import run

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run([str(a) for a in arguments])
        return CliResult(status, out.getvalue(), err.getvalue())

    def refused(self, words: str, *arguments: object) -> str:
        """Runs a command that must cost one line and status 2; the line."""
        done = self.run(*arguments)
        assert (done.status, done.stdout) == (2, ""), done
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert words in lines[0], lines[0]
        return self.plain(lines[0].removeprefix("sebra: "))

    def start(self, *arguments: object, **env: str) -> subprocess.Popen[str]:
        """`sebra ARGUMENTS` as a process."""
        return subprocess.Popen(
            [sys.executable, "-m", "sebra", *map(str, arguments)],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": str(REPO / "src"), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )

    def plain(self, text: str) -> str:
        """Without the name of the temporary folder, so that the table is always the same."""
        return text.replace(f"{self.path}{os.sep}", "")


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for the condition while the process runs."""
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


def stopped_by(process: subprocess.Popen[str], number: signal.Signals) -> CliResult:
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    return CliResult(process.returncode, out, err)


@contextlib.contextmanager
def small_disk(where: Path, kib: int) -> Iterator[None]:
    """A file system of so many KiB at `where`; the case is skipped where mounting is forbidden."""
    where.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", str(where)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        made = False
    if not made:
        pytest.skip("mounting a small file system is not permitted")
    try:
        yield
    finally:
        subprocess.run(["umount", str(where)], check=True)
