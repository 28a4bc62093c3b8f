"""Many runs in one process: memory and open files must not grow.

python -m soak.growth --runs 200
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import miniatures

MAX_GROWTH_MIB = 32.0


def measured() -> tuple[float, int, int]:
    """Resident MiB, open files and threads of this process."""
    import psutil

    gc.collect()
    process = psutil.Process()
    return process.memory_info().rss / 2**20, process.num_fds(), threading.active_count()


def once(root: Path, number: int) -> None:
    """A ranking and a model on features, then a ranking of images."""
    from sebra.cli.main import run

    data = root / "two.npz" if number % 3 else root / "pets"
    quick = ("--device", "cpu", "--out", str(root / "run"), "--json")
    arguments = {
        0: ("rank", str(data), "--backbone", "random", "--set", "epochs=2"),
        1: ("rank", str(data), "--set", "epochs=4"),
        2: ("debias", str(data), "--method", "erm", "--set", "epochs=3"),
    }[number % 3]
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        status = run([*arguments, *quick])
    assert status == 0, sink.getvalue()
    shutil.rmtree(root / "run")


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--runs", type=int, default=200)
    runs = options.parse_args().runs
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ |= {"SEBRA_CACHE": str(root / "cache"), "SEBRA_OFFLINE": "1"}
    miniatures.npz(root / "two.npz")
    miniatures.folder(root / "pets", n=8)
    warm = max(3, runs // 4)
    first = last = (0.0, 0, 0)
    try:
        for number in range(runs):
            once(root, number)
            if number + 1 == warm:
                first = measured()
        last = measured()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    growth = last[0] - first[0]
    sys.stderr.write(
        f"{runs} runs: {growth:+.1f} MiB since run {warm} (now {last[0]:.0f}), "
        f"open files {first[1]} -> {last[1]}, threads {first[2]} -> {last[2]}\n"
    )
    return 0 if growth < MAX_GROWTH_MIB and last[1:] <= first[1:] else 1


if __name__ == "__main__":
    sys.exit(main())
