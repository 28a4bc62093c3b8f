"""Calls the command line with generated options, arrays, manifests, run folders and cache entries.

No call may end in a traceback, take more than its memory or its minute, or end with status 1
for what a user supplied:

    python -m fuzz.calls --calls 1000 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fuzz.supplies import KINDS, Call, Supplies

MEMORY = 4 * 2**30
SECONDS = 60
# A method may find that the data gives no ranking, which its settings or the data decide: such an
# end has a line of its own and is counted apart.
NO_RESULT = ("collapsed", "not one of the", "in the same round", "loss is", "in one bucket")


@dataclass(frozen=True)
class End:
    """How a call ended."""

    status: int
    text: str
    seconds: float
    mebibytes: float

    @property
    def verdict(self) -> str:
        if "Traceback" in self.text or self.status not in (0, 1, 2):
            return "FAILED"
        if self.seconds > SECONDS or self.mebibytes * 2**20 > MEMORY:
            return "FAILED"
        if self.status == 1:
            return "no result" if any(w in self.text for w in NO_RESULT) else "FAILED"
        return "done" if self.status == 0 else "refused"


def run_call(call: Call, folder: Path) -> End:
    """Runs a call in a child of this process, so that imports are paid for once."""
    log = folder / "said"
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(call, log)
    status, used, busy = _waited(pid, start)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    code = os.waitstatus_to_exitcode(status)
    return End(code, text, busy, used / 1024)


def _waited(pid: int, start: float) -> tuple[int, int, float]:
    """Status, KiB of memory and seconds of work, which do not depend on who else works here."""
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage.ru_maxrss, usage.ru_utime + usage.ru_stime
        if time.monotonic() - start > 10 * SECONDS:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _child(call: Call, log: Path) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 5, SECONDS + 5))
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.chdir(call.cwd)
    os.environ.update(call.environment)
    status = 70
    try:
        from sebra.cli.main import run

        status = run([str(a) for a in call.arguments])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def prepare_process(root: Path) -> None:
    """One thread and a cache of its own: a forked child would wait for its parent's threads."""
    os.environ |= {
        "SEBRA_CACHE": str(root / "cache"),
        "SEBRA_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    import torch

    import sebra_bench.bench  # noqa: F401 once, for all children

    torch.set_num_threads(1)


def check(calls: int, seed: int, kinds: list[str], report: bool = True) -> list[str]:
    """Runs so many calls; a line for each that failed."""
    failed: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="calls-") as name:
        root = Path(name)
        prepare_process(root)
        supplies = Supplies(root)
        for number in range(calls):
            rng = random.Random(f"{seed}-{number}")
            kind = kinds[number % len(kinds)]
            place = root / "place"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            call = KINDS[kind](supplies, rng, place)
            end = run_call(call, place)
            verdict = end.verdict
            if verdict == "done" and call.harmless is not None and not call.harmless():
                verdict = "FAILED"
                end = End(0, f"another result without a word\n{end.text}", end.seconds, 0)
            counts[kind, verdict] += 1
            if verdict == "FAILED":
                shown = json.dumps([str(a)[:200] for a in call.arguments])
                tail = "\n".join(end.text.strip().splitlines()[-4:])
                failed.append(
                    f"{seed}-{number} {kind} {call.what}: {shown} {call.environment}\n"
                    f"status {end.status}, {end.seconds:.0f} s, {end.mebibytes:.0f} MiB\n{tail}\n"
                )
                if report:
                    sys.stderr.write(failed[-1] + "\n")
    if report:
        for kind in kinds:
            found = {v: n for (k, v), n in counts.items() if k == kind}
            sys.stderr.write(f"{kind:12} {found}\n")
        sys.stderr.write(f"{calls} calls from seed {seed}, {len(failed)} failed\n")
    return failed


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--calls", type=int, default=1000)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--kinds", default=",".join(KINDS))
    asked = options.parse_args()
    return 1 if check(asked.calls, asked.seed, asked.kinds.split(",")) else 0


if __name__ == "__main__":
    sys.exit(main())
