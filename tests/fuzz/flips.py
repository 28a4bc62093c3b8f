"""Flips single bits of what is kept, and reads it by the commands that use it.

Every flip is told of, or the result is the same: never another result without a word. `verify`
finds a flip in any file of a run:

    python -m fuzz.flips --flips 500 --seed 7
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fuzz.calls import prepare_process, run_call
from fuzz.supplies import DEVICE, LONG, QUICK, Call, Supplies


class Flips:
    """Good runs with their results; each method damages a copy and says what reads it."""

    def __init__(self, supplies: Supplies, place: Path) -> None:
        self.good, self.place = supplies, place
        self.expected: dict[str, bytes] = {}

    def kinds(self) -> dict[str, Callable[[random.Random], str]]:
        return {
            "cache": self.cache,
            "ranking": self.ranking,
            "model": self.model,
            "checkpoint": self.checkpoint,
            "verify": self.verify,
        }

    def cache(self, rng: random.Random) -> str:
        cache = self.place / "cache"
        shutil.copytree(self.good.root / "cache", cache, ignore=shutil.ignore_patterns(".*"))
        what = flip(rng, sorted(p for p in cache.rglob("*") if p.is_file()))
        asked = ["rank", self.good.pets, *QUICK, "--backbone", "random", "--out", self.place / "r"]
        call = Call(asked, self.place, environment={"SEBRA_CACHE": str(cache)})
        return f"{what}: {self.ended(call, self.place / 'r' / 'ranking.parquet', 'cache')}"

    def ranking(self, rng: random.Random) -> str:
        run, (name, asked, made) = self.copied(self.good.ranked), rng.choice(self._uses())
        self.known(name, [str(a).replace(str(run), str(self.good.ranked)) for a in asked], made)
        what = flip(rng, [run / "ranking.parquet"])
        return f"{what}, {name}: {self.ended(Call(asked, self.place), made, name)}"

    def _uses(self) -> list[tuple[str, list[object], Path]]:
        run, out = self.place / "run", self.place / "made"
        trained = [*QUICK, "--backbone", "random", "--method", "sebra", "--out", out]
        return [
            ("export", ["export", run, "--format", "csv", "--out", out], out),
            ("debias", ["debias", self.good.pets, "--ranking", run, *trained], out / "model.json"),
        ]

    def model(self, rng: random.Random) -> str:
        run, said = self.copied(self.good.model), self.place / "said"
        self.known("predict", ["predict", self.good.model, self.good.npz, *DEVICE], said)
        what = flip(rng, [run / "model.safetensors", run / "model.json"])
        call = Call(["predict", run, self.good.npz, *DEVICE], self.place)
        return f"{what}: {self.ended(call, said, 'predict')}"

    def checkpoint(self, rng: random.Random) -> str:
        state = self.place / "run" / "checkpoint" / "state.safetensors"
        state.parent.mkdir(parents=True)
        state.write_bytes(self.good.checkpoint)
        what = flip(rng, [state])
        out = self.place / "run"
        asked = ["rank", self.good.npz, *DEVICE, *LONG, "--out", out, "--resume"]
        return f"{what}: {self.ended(Call(asked, self.place), out / 'ranking.parquet', 'long')}"

    def verify(self, rng: random.Random) -> str:
        run = self.copied(rng.choice([self.good.model, self.good.ranked]))
        what = flip(rng, sorted(p for p in run.iterdir() if p.is_file()))
        end = run_call(Call(["verify", run], self.place), self.place)
        return f"{what}: {'told' if end.status in (1, 2) and tidy(end.text) else 'SILENT'}"

    def copied(self, run: Path) -> Path:
        return Path(shutil.copytree(run, self.place / "run"))

    def known(self, name: str, asked: list[object], made: Path) -> None:
        """Keeps what comes out where nothing is damaged."""
        if name not in self.expected:
            end = run_call(Call(asked, self.place), self.place)
            assert end.status == 0, end.text
            self.expected[name] = result(made)
            shutil.rmtree(made) if made.is_dir() else made.unlink()
            shutil.rmtree(self.place / "made", ignore_errors=True)

    def ended(self, call: Call, made: Path, name: str) -> str:
        end = run_call(call, self.place)
        if not tidy(end.text) or end.status not in (0, 2):
            return f"FAILED\n{end.text}"
        if end.status == 2:
            return "told"
        same = result(made) == self.expected[name]
        told = any(w in end.text for w in ("is made again", "was changed since"))
        return "told" if told else "harmless" if same else f"SILENT\n{end.text}"


def tidy(text: str) -> bool:
    return "Traceback" not in text


def result(made: Path) -> bytes:
    """What a command made; of a model its weights as well."""
    if made.name == "said":
        lines = made.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(k for k in lines if not k.startswith("sebra:")).encode()
    weights = made.with_name("model.safetensors")
    return made.read_bytes() + (weights.read_bytes() if weights.is_file() else b"")


def flip(rng: random.Random, files: list[Path]) -> str:
    """Flips a bit of one of the files; where."""
    file = rng.choice([f for f in files if f.stat().st_size])
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return f"{file.name} at {at} of {len(data)}"


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--flips", type=int, default=500)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--keep", type=Path, help="folder of good data and runs to use again")
    asked = options.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="flips-") as folder:
        root = Path(folder) if asked.keep is None else asked.keep.absolute()
        root.mkdir(parents=True, exist_ok=True)
        prepare_process(root)
        supplies, place = Supplies(root), Path(folder) / "place"
        flips = Flips(supplies, place)
        flips.expected |= {"cache": supplies.ranking, "long": supplies.long}
        kinds = flips.kinds()
        for number in range(asked.flips):
            kind = [*kinds][number % len(kinds)]
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            said = kinds[kind](random.Random(f"{asked.seed}-{number}"))
            end = said.splitlines()[0].rpartition(": ")[2]
            counts[kind, end] += 1
            if end not in ("told", "harmless"):
                sys.stderr.write(f"{asked.seed}-{number} {kind} {said}\n")
    for (kind, end), count in sorted(counts.items()):
        sys.stderr.write(f"{kind:12} {end:10} {count}\n")
    wrong = sum(n for (_, end), n in counts.items() if end not in ("told", "harmless"))
    sys.stderr.write(f"{asked.flips} flips from seed {asked.seed}, {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
