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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fuzz import wide
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

    def verdict(self, call: Call) -> str:
        if "Traceback" in self.text or self.status not in (0, 1, 2):
            return "FAILED"
        if self.seconds > SECONDS or self.mebibytes * 2**20 > MEMORY:
            return "FAILED"
        if self.status == 2 and not _last_line(self.text).startswith("sebra: "):
            return "FAILED"
        if self.status == 1:
            if call.arguments[0] in call.finds:
                return "found"
            return "no result" if any(w in self.text for w in NO_RESULT) else "FAILED"
        return "done" if self.status == 0 else "refused"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def run_call(call: Call, folder: Path, real: bool = False) -> End:
    """Runs a call in a child of this process, so that imports are paid for once.

    real: as a process of its own instead, as a user starts it.
    """
    log = folder / "said"
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(call, log, real)
    status, used, busy = _waited(pid, start)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    code = os.waitstatus_to_exitcode(status)
    return End(code, text, busy, used / 1024)


def _waited(pid: int, start: float) -> tuple[int, int, float]:
    """Status, KiB of memory and seconds of work, which do not depend on who else works here.

    A child that does nothing for a minute waits for something that will not come.
    """
    worked, at = 0.0, start
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage.ru_maxrss, usage.ru_utime + usage.ru_stime
        now, busy = time.monotonic(), _work(pid)
        if busy - worked > 0.05:
            worked, at = busy, now
        if now - at > SECONDS or now - start > 10 * SECONDS:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _work(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _child(call: Call, log: Path, real: bool) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 5, SECONDS + 5))
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.chdir(call.cwd)
    os.environ.update(call.environment)
    if real:
        asked = [sys.executable, "-m", "sebra", *map(str, call.arguments)]
        os.execv(sys.executable, asked)
    status = 70
    try:
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")  # type: ignore[union-attr]
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


def check(
    calls: int,
    seed: int,
    names: list[str],
    report: bool = True,
    real: float = 0.0,
    first: int = 0,
    keep: Path | None = None,
) -> list[str]:
    """Runs so many calls from the `first` on; a line for each that failed.

    real: the share that runs as processes of their own. keep: a folder for the good data and runs
    that calls start from, to be used again the next time.
    """
    failed: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="calls-") as name:
        root = Path(name) if keep is None else keep.absolute()
        root.mkdir(parents=True, exist_ok=True)
        prepare_process(root)
        supplies = Supplies(root)
        kinds = wide.makers(supplies) | {
            name: partial(make, supplies) for name, make in KINDS.items()
        }
        names = names or list(kinds)
        for number in range(first, first + calls):
            kind = names[number % len(names)]
            place = Path(name) / "place"
            rng, call = _made(kinds[kind], f"{seed}-{number}", place)
            end = run_call(call, place, rng.random() < real)
            verdict = end.verdict(call)
            if verdict == "done" and call.harmless is not None and not call.harmless():
                verdict = "FAILED"
                end = End(0, f"another result without a word\n{end.text}", end.seconds, 0)
            counts[kind, verdict] += 1
            if report:
                said = _last_line(end.text)[:150]
                sys.stderr.write(f"{number} {kind} {verdict} {end.seconds:.1f} s {said}\n")
            if verdict == "FAILED":
                shown = json.dumps([str(a)[:200] for a in call.arguments])
                tail = "\n".join(line[:300] for line in end.text.strip().splitlines()[-7:])
                failed.append(
                    f"{seed}-{number} {kind} {call.what}: {shown} {call.environment}\n"
                    f"status {end.status}, {end.seconds:.0f} s, {end.mebibytes:.0f} MiB\n{tail}\n"
                )
                if report:
                    sys.stderr.write(failed[-1] + "\n")
    if report:
        for kind in names:
            found = {v: n for (k, v), n in counts.items() if k == kind}
            sys.stderr.write(f"{kind:12} {found}\n")
        sys.stderr.write(f"{calls} calls from seed {seed}, {len(failed)} failed\n")
    return failed


def _made(
    make: Callable[[random.Random, Path], Call], seed: str, place: Path
) -> tuple[random.Random, Call]:
    """A call in an empty folder; drawn again where no file can hold what was drawn."""
    while True:
        _remove(place)
        place.mkdir()
        rng = random.Random(seed)
        try:
            return rng, make(rng, place)
        except (OSError, TypeError, ValueError, OverflowError) as error:
            sys.stderr.write(f"{seed} cannot be made ({error}), drawn again\n")
            seed += "+"


def _remove(place: Path) -> None:
    """Also what a call made unreadable."""
    for folder in (p for p in place.rglob("*") if p.is_dir() and not p.is_symlink()):
        folder.chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)


def _shared_out(asked: argparse.Namespace, keep: Path) -> int:
    """The calls in several processes, each with a part of the numbers; they share the cache too."""
    import subprocess

    prepare_process(keep)
    made = wide.Wide(Supplies(keep))
    sys.stderr.write(f"calls start from {made.audited} and {made.painted}\n")
    share = -(-asked.calls // asked.workers)
    command = [sys.executable, "-m", "fuzz.calls", "--calls", str(share), "--seed", str(asked.seed)]
    command += ["--kinds", asked.kinds, "--real", str(asked.real), "--keep", str(keep)]
    numbers = range(asked.first, asked.first + asked.calls, share)
    started = [subprocess.Popen([*command, "--first", str(number)]) for number in numbers]
    return max(process.wait() for process in started)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--calls", type=int, default=1000)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--first", type=int, default=0, help="number of the first call")
    options.add_argument("--kinds", default="", help="only these, with commas")
    options.add_argument("--real", type=float, default=0.0, help="share run as real processes")
    options.add_argument("--workers", type=int, default=1, help="processes that share the calls")
    options.add_argument("--keep", type=Path, help="folder of good data and runs to use again")
    asked = options.parse_args()
    names = [name for name in asked.kinds.split(",") if name]
    if asked.workers > 1:
        with tempfile.TemporaryDirectory(prefix="supplies-") as folder:
            return _shared_out(asked, Path(folder))
    failed = check(asked.calls, asked.seed, names, True, asked.real, asked.first, asked.keep)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
