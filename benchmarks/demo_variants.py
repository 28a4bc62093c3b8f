"""Does peel find what was planted in the built-in set, and nothing where nothing was?

    python benchmarks/demo_variants.py OUT.jsonl [SEED ...]

Runs `sebra rank "demo?biases=B&seed=S" --method peel --seed S` for the set with two and with three
biases and without any. A run is right if it has exactly as many stages as biases were planted and
the k-th stage is aligned with the k-th bias, the strongest first, more than with any other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

BIASES = (2, 3, 0)
SEEDS = (10, 11, 12, 13, 14)  # not among those that the threshold was set with
ALIGNED = 0.6  # class-wise Somers' D from which a stage counts as that bias


def ranked(biases: int, seed: int) -> dict[str, Any]:
    """The `ranking` part of what the command prints."""
    data = f"demo?biases={biases}&seed={seed}"
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sebra", "rank", data, "--method", "peel", "--json"]
        command += ["--seed", str(seed), "--device", "cpu", "--out", f"{folder}/run"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)["ranking"]
    return found


def is_right(found: dict[str, Any], biases: int) -> bool:
    """Every planted bias has its stage, in order, and there is no other stage."""
    stages = found["stages"]
    if len(stages) != biases:
        return False
    for place, stage in enumerate(stages):
        given = list(stage["given"].values())
        if given[place] < ALIGNED or max(given) > given[place]:
            return False
    return True


def row_of(biases: int, seed: int) -> dict[str, Any]:
    found = ranked(biases, seed)
    refused = found.get("refused")
    stages = [max(s["given"].items(), key=lambda item: float(item[1])) for s in found["stages"]]
    return {
        "planted": biases,
        "seed": seed,
        "stages": len(stages),
        "aligned_with": "; ".join(f"{name} {d:.2f}" for name, d in stages),
        "chance": "; ".join(f"{p['chance']:.2g}" for p in found.get("patterns", ())),
        "refused_chance": "" if refused is None else f"{refused['chance']:.2g}",
        "somers_d": f"{found['somers_d']:.3f}",
        "right": "yes" if is_right(found, biases) else "no",
    }


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    target, *given = sys.argv[1:]
    seeds = [int(s) for s in given] or SEEDS
    rows = [row_of(biases, seed) for biases in BIASES for seed in seeds]
    Path(target).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    right = sum(row["right"] == "yes" for row in rows)
    sys.stdout.write(f"{right} of {len(rows)} right\n")


if __name__ == "__main__":
    main()
