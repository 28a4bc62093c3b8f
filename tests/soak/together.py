"""Several processes at once: with one run folder, and with one cache that is damaged meanwhile.

Of two commands with the same `--out` one writes it, the other says so; four that share an empty
cache end with the same result, also where a fifth hand flips bytes in its entries:

    python -m soak.together --rounds 10
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

DATA = ("demo?n=200", "--device", "cpu", "--backbone", "random")


def start(arguments: Sequence[str], log: Path) -> int:
    """The command line in a child; its process id."""
    pid = os.fork()
    if pid:
        return pid
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    status = 70
    try:
        from sebra.cli.main import run

        status = run(list(arguments))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def end(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def one_folder(root: Path, rng: random.Random, expected: bytes) -> str:
    """Two with one folder: one wins, the other says so or finds it done."""
    out = root / "one"
    shutil.rmtree(out, ignore_errors=True)
    asked = ["rank", *DATA, "--out", str(out), "--resume"]
    logs = [root / "log-0", root / "log-1"]
    first = start(asked, logs[0])
    time.sleep(rng.uniform(0, 1))
    second = start(asked, logs[1])
    ends = [end(first), end(second)]
    said = [log.read_text(encoding="utf-8", errors="replace") for log in logs]
    assert 0 in ends, (ends, said)
    for status, text in zip(ends, said, strict=True):
        assert "Traceback" not in text, text
        assert status == 0 or (status == 2 and "another process" in text), (ends, said)
    assert (out / "ranking.parquet").read_bytes() == expected
    assert not list(out.rglob("*.tmp"))
    return f"ended with {ends}"


def one_cache(root: Path, rng: random.Random, expected: bytes) -> str:
    """Four with one cache that is empty at first, and a byte that flips now and then."""
    cache = root / "shared"
    shutil.rmtree(cache, ignore_errors=True)
    os.environ["SEBRA_CACHE"] = str(cache)
    outs = [root / f"four-{i}" for i in range(4)]
    for out in outs:
        shutil.rmtree(out, ignore_errors=True)
    running = {
        start(["rank", *DATA, "--out", str(out)], root / f"log-{i}"): i
        for i, out in enumerate(outs)
    }
    flips, ends = 0, {}
    while running:
        done, status = os.waitpid(-1, os.WNOHANG)
        if done in running:
            ends[running.pop(done)] = os.waitstatus_to_exitcode(status)
        if rng.random() < 0.3:
            flips += _flip(cache, rng)
        time.sleep(0.05)
    said = [(root / f"log-{i}").read_text(encoding="utf-8", errors="replace") for i in range(4)]
    assert set(ends.values()) == {0}, (ends, said)
    for out in outs:
        assert (out / "ranking.parquet").read_bytes() == expected, said
    return f"four the same, {flips} bytes flipped under them"


def _flip(cache: Path, rng: random.Random) -> int:
    """Flips a byte of an entry, in a copy that takes its place: maps stay what they are."""
    files = [p for p in cache.rglob("*") if p.is_file() and ".building-" not in str(p)]
    if not files:
        return 0
    file = rng.choice(sorted(files))
    try:
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        passing = file.with_name(".flipped")
        passing.write_bytes(data)
        passing.replace(file)
    except (OSError, ValueError):  # it was made again meanwhile
        return 0
    return 1


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    root = Path(tempfile.mkdtemp(prefix="together-"))
    os.environ |= {
        "SEBRA_CACHE": str(root / "cache"),
        "SEBRA_OFFLINE": "1",
        "SEBRA_CHECKPOINT_SECONDS": "0.02",
        "OMP_NUM_THREADS": "1",
    }
    import torch

    import sebra.workflows.rank  # noqa: F401 once, for all children

    torch.set_num_threads(1)
    rng = random.Random(asked.seed)
    try:
        assert end(start(["rank", *DATA, "--out", str(root / "whole")], root / "log")) == 0
        expected = (root / "whole" / "ranking.parquet").read_bytes()
        for number in range(asked.rounds):
            for kind in (one_folder, one_cache):
                sys.stderr.write(f"{number} {kind.__name__}: {kind(root, rng, expected)}\n")
                os.environ["SEBRA_CACHE"] = str(root / "cache")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
