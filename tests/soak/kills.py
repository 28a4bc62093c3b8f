"""Stops every long command at random moments, resumes it, and compares with an unharmed run.

Half of the signals are SIGTERM, half SIGKILL, from the first 50 ms on; `--resume` is always given,
as by a cluster that starts a job again with the same options.

Every run is a fork of this process, so that it starts without the cost of imports; with `--real`
it is a process of its own, which may be stopped while it imports:

    python -m soak.kills --kills 50
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

KILLED = (-signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM)  # the last before Python runs
STATE = "state.safetensors"
DATA = "demo?n=200"
SHARED = ("--device", "cpu", "--backbone", "random")
COMPARED = (
    "ranking.parquet",
    "history.parquet",
    "model.safetensors",
    "model.json",
    "patterns.json",
    "patterns.safetensors",
    "quarantine.csv",
)
NOT_KILLED = {"neurons"}  # it needs marks of a person, and has no epochs
# How many controls a run has time for, and what it says by them, is the machine's.
VOLATILE = {
    *("seconds", "peak_memory_mib", "run", "notes", "date", "report"),
    *("controls", "trust", "verdict"),
}


def commands(names: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Every ranker, every debiasing method, and a benchmark; or those of some names."""
    from sebra.debiasing.registry import METHODS
    from sebra.ranking.registry import RANKERS

    ranks = [("rank", DATA, "--method", m) for m in RANKERS if m not in NOT_KILLED]
    models = [("debias", DATA, "--method", m, "--set", "epochs=20") for m in METHODS]
    bench = [("bench", DATA, "--methods", "erm,lff", "--rank-methods", "sebra", "--seeds", "2")]
    audit = [("audit", DATA, "--method", m) for m in ("sebra", "peel")]
    every = [(*c, *SHARED) for c in (*ranks, *models, *audit, *bench)]
    return [c for c in every if not names or c[0] in names or c[3] in names]


def fork(arguments: Sequence[str]) -> int:
    """Runs the command line in a child; its process id."""
    pid = os.fork()
    if pid:
        return pid
    quiet = os.open(os.devnull, os.O_WRONLY)
    log = os.open(os.environ["SOAK_LOG"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(quiet, 1)
    os.dup2(log, 2)
    if os.environ.get("SOAK_REAL"):
        os.execv(sys.executable, [sys.executable, "-m", "sebra", *arguments])
    from sebra.cli.main import main as command_line

    status = 70
    try:
        command_line(arguments)
    except SystemExit as left:
        status = int(left.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def under_way(out: Path) -> bool:
    """Whether there is something to go on from: a checkpoint, or finished rows."""
    return (out / "checkpoint" / STATE).exists() or any(out.glob("ran*/*.json"))


def finish(arguments: Sequence[str], out: Path) -> tuple[float, float]:
    """Runs a command to its end; the seconds it took, and those since its first checkpoint."""
    start = time.monotonic()
    pid = fork([*arguments, "--out", str(out)])
    first, status = 0.0, None
    while status is None:
        first = first or (time.monotonic() if under_way(out) else 0.0)
        done, found = os.waitpid(pid, os.WNOHANG)
        status = found if done else None
        time.sleep(0.002)
    if status != 0:
        text = Path(os.environ["SOAK_LOG"]).read_text(encoding="utf-8", errors="replace")
        raise AssertionError(f"{' '.join(arguments)} failed:\n{text}")
    end = time.monotonic()
    return end - start, end - first if first else 0.0


def kill(arguments: Sequence[str], out: Path, after: float, wait: bool, number: int) -> int:
    """Starts a command and stops it, with `wait` after its first checkpoint; its exit status."""
    pid = fork([*arguments, "--out", str(out)])
    end = time.monotonic() + 600
    while wait and not under_way(out) and time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    time.sleep(after)
    os.kill(pid, number)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def again(command: Sequence[str]) -> list[str]:
    """How a cluster starts a job, the first time and every time after."""
    return [*command, "--resume"]


def result(folder: Path) -> dict[str, bytes]:
    """What must be the same, bit for bit; of JSON all but times and memory."""
    found = {n: (folder / n).read_bytes() for n in COMPARED if (folder / n).is_file()}
    found |= {f.name: f.read_bytes() for f in sorted(folder.glob("rankings/*.parquet"))}
    figures = folder / "metrics.json"
    if figures.is_file():
        kept = _steady(json.loads(figures.read_text(encoding="utf-8")))
        found[figures.name] = json.dumps(kept, sort_keys=True).encode()
    rows = folder / "rows.jsonl"
    for line in rows.read_text(encoding="utf-8").splitlines() if rows.is_file() else ():
        row = json.loads(line)
        kept = _steady(row)
        name = f"{row['kind']} {row['method']} {row['seed']}"
        found[name] = json.dumps(kept, sort_keys=True).encode()
    return found


def _steady(value: object) -> object:
    """Of figures all that does not depend on the machine and the moment."""
    if isinstance(value, list):
        return [_steady(v) for v in value]
    if isinstance(value, dict):
        return {k: _steady(v) for k, v in value.items() if k not in VOLATILE}
    return value


def result_of(command: Sequence[str], whole: Path) -> tuple[dict[str, bytes], float, float]:
    """An uninterrupted run, its seconds and those since its first checkpoint."""
    seconds, late = finish(command, whole)
    found = result(whole)
    assert found, command
    return found, seconds, late


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--names", default="", help="only these methods or commands, with commas")
    options.add_argument("--real", action="store_true", help="processes of their own, not forks")
    asked = options.parse_args()
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ |= {
        "SEBRA_CACHE": str(root / "cache"),
        "SEBRA_OFFLINE": "1",
        "SEBRA_CHECKPOINT_SECONDS": "0.02",
        "SOAK_LOG": str(root / "log"),
        "SOAK_REAL": "1" if asked.real else "",
        "OMP_NUM_THREADS": "1",  # a forked child would wait for its parent's threads for ever
    }
    import sebra.workflows.debias
    import sebra.workflows.rank  # noqa: F401 once, for all children

    rng = random.Random(asked.seed)
    try:
        todo = commands(asked.names.split(",") if asked.names else ())
        return _kill_all(root, todo, asked.kills, rng)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _warm(arguments: list[str]) -> None:
    """Runs a command here: it fills the cache and loads what every child would load again."""
    import contextlib
    import io

    from sebra.cli.main import run

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = run(arguments)
    assert status == 0, said.getvalue()


def _kill_all(root: Path, todo: list[tuple[str, ...]], kills: int, rng: random.Random) -> int:
    for number, command in enumerate(todo[:1] + todo[-1:]):
        _warm([*command, "--out", str(root / f"warm-{number}")])
    kinds = sorted({command[0] for command in todo})
    known: dict[tuple[str, ...], tuple[dict[str, bytes], float, float]] = {}
    counts: Counter[str] = Counter()
    done = resumed = wrong = 0

    def signal_of(command: Sequence[str]) -> int:
        chosen = rng.choice((signal.SIGTERM, signal.SIGKILL))
        sent.append(f"{command[0]} {chosen.name}")
        return chosen

    for number in range(10 * kills):
        if done >= kills:
            break
        sent: list[str] = []
        of_kind = [c for c in todo if c[0] == kinds[number % len(kinds)]]
        command = rng.choice(of_kind)
        if command not in known:
            whole = root / f"whole-{len(known)}"
            known[command] = result_of(command, whole)
        expected, seconds, late = known[command]
        out = root / "run"
        shutil.rmtree(out, ignore_errors=True)
        # Many moments are after the first checkpoint; reading the data takes the larger part.
        wait = late > 0 and rng.random() < 0.4
        after = rng.uniform(0.05, max(0.06, late if wait else seconds))
        status = kill(again(command), out, after, wait, signal_of(command))
        while status in KILLED and done < kills:
            done += 1
            counts[sent[-1]] += 1
            resumed += under_way(out)
            if rng.random() < 0.6:
                break
            after = rng.uniform(0.05, max(0.06, seconds))
            status = kill(again(command), out, after, False, signal_of(command))
        if status:
            said = Path(os.environ["SOAK_LOG"]).read_text(encoding="utf-8", errors="replace")
            assert status in KILLED, (command, status, sent, said)
            finish(again(command), out)
        found = result(out)
        other = sorted(n for n in {*found, *expected} if found.get(n) != expected.get(n))
        left = [p.name for p in out.rglob("*.tmp")]
        wrong += bool(other or left)
        verdict = f"DIFFERENT {other} {left} after {sent}" if other or left else "same"
        for name in other if "metrics.json" in other else ():
            sys.stderr.write(
                f"{name}\n  {expected.get(name)!r:.9000}\n  {found.get(name)!r:.9000}\n"
            )
        sys.stderr.write(f"{done:3d} kills  {' '.join(command[:4])}: {verdict}\n")
        sys.stderr.flush()
    sys.stderr.write(f"{done} kills, {resumed} of them resumed, {wrong} wrong results\n")
    sys.stderr.write(f"{dict(sorted(counts.items()))}\n")
    return 1 if wrong or done < kills else 0


if __name__ == "__main__":
    sys.exit(main())
