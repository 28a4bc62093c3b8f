"""What a user may supply: calls made at random, and the good data and runs they start from."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import miniatures

DEVICE = ("--device", "cpu")
QUICK = (*DEVICE, "--set", "epochs=2")
VALUES = [
    "", "-1", "0", "1", "2", "3", "7", "0.5", "-0.0", "1e38", "1e308", "1e-400", "nan", "inf",
    "-inf", "abc", "9" * 30, "None", "true", "[]", "0x10", " 5 ", "../..", "a" * 5000, "\u202e",
    os.fsdecode(b"\xff\xfe"), "é", "a=b", "2147483648", str(2**63), str(2**64), "/", ".", "~",
    "/dev/null", "/dev/zero", "/proc/self/mem", "hub", "none", "auto", "features", "finetune",
]  # fmt: skip
OPTIONS = [
    "--seed", "--image-size", "--mode", "--backbone", "--weights", "--preset", "--attributes",
    "--exclude", "--out", "--method", "--device", "--track", "--neurons", "--min-group", "--seeds",
    "--k", "--format", "--data", "--ranking", "--rank-method", "--jobs", "--methods",
    "--tune-seconds",
]  # fmt: skip
COMMANDS = [
    "rank", "debias", "audit", "evaluate", "predict", "report", "export", "verify", "data", "bench",
]  # fmt: skip
TYPES = [
    "<f4", ">f4", "<f8", ">f8", "f2", "longdouble", "i1", ">i2", "<i8", "u1", "<u2", "u4", "u8",
    "?", "c8", "S4", "U3", "M8[s]", "m8[s]", "V8",
]  # fmt: skip
DATAS = [
    "demo?n=100000000", "demo?n=-5", "demo?n=1e9", "demo?strength=2", "demo?biases=99", "demo:x",
    "hf:../..", "hf:..", "hf:/", "hf:", "hf:a/b/c", "hf:-x", "https://host/x.csv", "https:", "s3://b/x",
    "gs://b", "file:///etc", "mars:x", "celeba:.", "urbancars:/dev/null", "bar:" + "a" * 5000, "?",
    "demo?", "demo?n", "demo?n=100&n=200", "\u202e", "/dev/zero", "/dev/null", "/proc", "-",
    "~nobody/x",
]  # fmt: skip
WORDS = ["null", "-1", "1e999", "true", "[]", "{}", '""', "9" * 30, '"demo?n=100000000"', "1e9"]


@dataclass
class Call:
    """A command line, where it is run, and (of a call that should change nothing) a check."""

    arguments: list[object]
    cwd: Path
    what: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    harmless: Callable[[], bool] | None = None
    finds: set[str] = field(default_factory=set)  # commands whose status 1 is what they found


class Supplies:
    """Good data, and a finished run of each kind with what it left in the cache; made once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        new = not (root / "x.npz").exists()
        self.npz = miniatures.npz(root / "x.npz") if new else root / "x.npz"
        self.pets = miniatures.folder(root / "pets", n=8) if new else root / "pets"
        self.table = miniatures.manifest(root / "table") if new else root / "table" / "table.csv"
        self.model = self._made("debias", self.npz, *QUICK, "--set", "batch=16")
        self.ranked = self._made("rank", self.pets, *QUICK, "--backbone", "random")
        self.ranking = (self.ranked / "ranking.parquet").read_bytes()
        self.checkpoint = self._checkpoint()

    def _made(self, *arguments: object) -> Path:
        from fuzz.calls import run_call

        out = self.root / f"good-{arguments[0]}-{Path(str(arguments[1])).stem}"
        if (out / "metrics.json").is_file():  # of an earlier time, in a folder that is kept
            return out
        place = self.root / "making"
        place.mkdir(exist_ok=True)
        end = run_call(Call([*arguments, "--out", out], place), place)
        assert end.status == 0, end.text
        return out

    def _checkpoint(self) -> bytes:
        """Of a rank run over `npz` that was stopped after some epochs."""
        import signal
        import subprocess
        import sys
        import time

        out = self.root / "stopped"
        state = out / "checkpoint" / "state.safetensors"
        whole = self._made("rank", self.npz, *DEVICE, *LONG)
        self.long = (whole / "ranking.parquet").read_bytes()
        if state.exists():
            return state.read_bytes()
        asked = ["rank", self.npz, *DEVICE, *LONG, "--out", out]
        started = subprocess.Popen(
            [sys.executable, "-m", "sebra", *map(str, asked)],
            env={**os.environ, "SEBRA_CHECKPOINT_SECONDS": "0"},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        while not state.exists() and started.poll() is None:
            time.sleep(0.005)
        started.send_signal(signal.SIGTERM)
        assert started.wait() == 143
        return state.read_bytes()


LONG = (
    "--set",
    "resolution=epoch",
    "--set",
    "p_critical=0.9",
    "--set",
    "epochs=300",
    "--set",
    "lr=0.05",
)


def with_options(supplies: Supplies, rng: random.Random, place: Path) -> Call:
    """Any command with values nobody means."""
    from sebra.debiasing.registry import METHODS
    from sebra.ranking.registry import RANKERS

    command = rng.choice(COMMANDS)
    good = {
        "rank": ["rank", supplies.npz, *QUICK],
        "debias": ["debias", supplies.npz, *QUICK],
        "audit": ["audit", rng.choice([supplies.npz, supplies.pets]), *DEVICE],
        "evaluate": ["evaluate", supplies.model, supplies.npz, *DEVICE],
        "predict": ["predict", supplies.model, supplies.npz, *DEVICE],
        "report": ["report", supplies.ranked],
        "export": ["export", supplies.ranked, "--format", "csv"],
        "verify": ["verify", supplies.model],
        "data": ["data", "check", supplies.npz],
        "bench": ["bench", supplies.npz, *QUICK, "--methods", "erm", "--seeds", "1"],
    }[command]
    arguments: list[object] = list(good)
    for _ in range(rng.choice([1, 1, 2])):
        way = rng.random()
        if way < 0.35 and command in ("rank", "debias", "audit", "bench"):
            known = RANKERS if command in ("rank", "audit") else METHODS
            name = rng.choice(sorted(known))
            kind = known[name].load() if hasattr(known[name], "load") else known[name]
            fields = [f.name for f in dataclasses.fields(getattr(kind, "config_class", kind))]
            if command != "bench":
                arguments += ["--method", name]
            arguments += ["--set", f"{rng.choice(fields or ['x'])}={rng.choice(VALUES)}"]
        elif way < 0.5 and len(arguments) > 1:
            place_of_data = 2 if command in ("evaluate", "predict", "data") else 1
            arguments[place_of_data] = rng.choice([*DATAS, *VALUES])
        else:
            arguments += [rng.choice(OPTIONS), rng.choice(VALUES)]
    if "--out" not in arguments and command in ("rank", "debias", "audit", "bench"):
        arguments += ["--out", place / "run"]
    environment = {}
    if rng.random() < 0.1:
        name = rng.choice(["WORLD_SIZE", "RANK", "SEBRA_CHECKPOINT_SECONDS", "SEBRA_CACHE"])
        value = rng.choice(["abc", "-1", "1e9", "/dev/null", " "])
        environment = {name: value}
    return Call(arguments, place, command, environment)


def with_arrays(supplies: Supplies, rng: random.Random, place: Path) -> Call:
    """Features and labels of every type and layout."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    n, d = rng.choice([*[(40, 3)] * 9, (40, 1), (4, 3), (2, 2), (0, 3), (40, 0), (41, 700)])
    scale = rng.choice([*[1] * 9, 0, 1e-30, 1e30, 1e300])
    x = numbers.normal(size=(n, d)) * scale + rng.choice([0, 0, 5, 1e6])
    held = {"X": x, "y": numbers.integers(0, 2, n)}
    if rng.random() < 0.6:
        held["X"] = _typed(x, rng)
    if rng.random() < 0.5:
        held["y"] = _labels(numbers, n, rng)
    if rng.random() < 0.4:
        names = np.array(["train", "val", "test"])[numbers.integers(0, 3, n)]
        held["split"] = rng.choice([names, names.astype("S5"), numbers.integers(0, 4, n), x])
    if rng.random() < 0.5:
        held[rng.choice(["cue", "a/b", "é", "id", "label"])] = _labels(numbers, n, rng)
    if rng.random() < 0.2:
        held["X"] = rng.choice([held["X"].reshape(-1), held["X"][None], held["X"].T, held["X"][:1]])
    with np.errstate(all="ignore"):
        if rng.random() < 0.5:
            data = place / "x.npz"
            np.savez(data, **{k.replace("/", "_"): v for k, v in held.items()}, allow_pickle=True)
        else:
            data = place / "arrays"
            data.mkdir()
            for name, value in held.items():
                np.save(data / f"{name.replace('/', '_')}.npy", value, allow_pickle=True)
    what = f"X {held['X'].dtype} {held['X'].shape}, y {held['y'].dtype}"
    command = rng.choice(["rank", "debias", "data"])
    if command == "data":
        return Call(["data", "check", data], place, what)
    method = ["--method", rng.choice(["erm", "sebra"])]
    return Call([command, data, *method, *QUICK, "--out", place / "run"], place, what)


def _typed(x: np.ndarray, rng: random.Random) -> np.ndarray:
    with np.errstate(all="ignore"):
        try:
            out = x.astype(rng.choice(TYPES))
        except (TypeError, ValueError, OverflowError):
            out = np.zeros(x.shape, dtype="V8")
    return np.asfortranarray(out) if rng.random() < 0.3 else out


def _labels(numbers: np.random.Generator, n: int, rng: random.Random) -> np.ndarray:
    codes = numbers.integers(0, rng.choice([1, 2, 2, 2, 3, 10]), n)
    names = np.array(["cat", "dog", "é", "", "\ud800", "a\0b", "=1+1", "x" * 300, "train", "-1"])
    return rng.choice(
        [codes, codes.astype(">i8"), names[codes], names[codes].astype(object),
         np.char.encode(names[codes].tolist(), "utf-8", "surrogatepass") if n else codes,
         codes.astype("longdouble"), codes + 0.5, codes.astype(">f8"), codes.astype(bool),
         codes.astype("M8[D]"), codes.astype("c8"), codes.astype("u8"), codes[:, None],
         np.where(codes > 0, np.nan, codes.astype(float)), np.full(n, np.inf)]
    )  # fmt: skip


def with_manifest(supplies: Supplies, rng: random.Random, place: Path) -> Call:
    """Tables of pictures with columns of every kind."""
    kind = rng.choice(["csv", "parquet", "tsv"])
    n = rng.choice([*[12] * 9, 3, 1, 0])
    names = [f"{supplies.table.parent}/images/{i}.png" for i in range(n)]
    table = pd.DataFrame({"path": names, "label": [("a", "b")[i % 2] for i in range(n)]})
    for _ in range(rng.choice([0, 1, 2])):
        column = rng.choice(["path", "label", "split", "id", "cue", "text", "label"])
        table[column] = pd.Series(_column(rng, n), dtype=object)
    data = place / f"t.{kind}"
    try:
        if kind == "parquet":
            table.to_parquet(data)
        else:
            table.to_csv(data, index=False, sep="," if kind == "csv" else "\t")
    except Exception:
        data.write_text("path,label\n" + "\0,a\n" * 3, encoding="utf-8")
    if rng.random() < 0.2:
        _damage(data, rng)
    what = f"{kind} of {n}"
    if rng.random() < 0.3:
        return Call(["data", "check", data], place, what)
    rest = ["--backbone", "random", "--out", place / "run"]
    known = [["rank", data, *QUICK, *rest], ["audit", data, *DEVICE, *rest]]
    return Call(rng.choice(known), place, what)


def _column(rng: random.Random, n: int) -> list[Any]:
    values: list[Any] = [
        ["a", "b"], {"a": 1}, b"\xff\xfe", None, float("nan"), "x", "", 3, 2.5, True, "train",
        pd.Timestamp("2020-01-01"), "a\0b", "/dev/zero", "/dev/stdin", ".", "x" * 10_000, "../..",
        np.array([1, 2]), "é", "=cmd()", 2**62, float("inf"), "NA", "null",
    ]  # fmt: skip
    kinds = rng.sample(values, rng.choice([1, 1, 2, 3]))
    return [rng.choice(kinds) for _ in range(n)]


def with_run(supplies: Supplies, rng: random.Random, place: Path) -> Call:
    """A run folder of a stranger."""
    good = rng.choice([supplies.model, supplies.ranked])
    run = place / "run"
    shutil.copytree(good, run)
    if rng.random() < 0.5:
        (run / "checksums.json").unlink()
    file = rng.choice(sorted(p for p in run.iterdir() if p.is_file()))
    if file.name == "config.toml" and rng.random() < 0.7:
        key = rng.choice(["data", "attributes", "overrides", "seed", "settings", "exclude"])
        value = rng.choice(
            ['"demo?n=100000000"', "7", "[1]", '"a\\u0000b"', '"/dev/zero"', "[]", "inf"]
        )
        lines = [k for k in file.read_text(encoding="utf-8").splitlines() if not k.startswith(key)]
        file.write_text("\n".join([f"{key} = {value}", *lines]), encoding="utf-8")
    elif file.suffix == ".json" and rng.random() < 0.7:
        _replace_word(file, rng)
    else:
        _damage(file, rng)
    data = supplies.npz if good == supplies.model else supplies.pets
    out = place / "made"
    command = rng.choice(
        [["report", run], ["evaluate", run, data, *DEVICE], ["predict", run, data, *DEVICE],
         ["export", run, "--format", rng.choice(["csv", "npz", "onnx"]), "--out", place / "file"],
         ["verify", run], ["debias", data, "--ranking", run, *QUICK, "--out", out],
         ["rank", data, *QUICK, "--out", run, "--resume"]]
    )  # fmt: skip
    end_is_fault = command[0] == "verify"
    call = Call(command, place, f"{file.name} of {good.name}")
    if end_is_fault:
        call.arguments = (
            ["report", run] if good == supplies.ranked else ["predict", run, data, *DEVICE]
        )
    return call


def with_cache(supplies: Supplies, rng: random.Random, place: Path) -> Call:
    """Entries of the cache, a ranking or a checkpoint with a byte flipped, cut or zeroed."""
    if rng.random() < 0.3:
        return _with_checkpoint(supplies, rng, place)
    cache = place / "cache"
    shutil.copytree(supplies.root / "cache", cache, ignore=shutil.ignore_patterns(".*"))
    file = rng.choice(sorted(p for p in cache.rglob("*") if p.is_file()))
    _damage(file, rng)
    out = place / "run"
    call = Call(
        ["rank", supplies.pets, *QUICK, "--backbone", "random", "--out", out], place, file.name
    )
    call.environment = {"SEBRA_CACHE": str(cache)}
    call.harmless = lambda: (out / "ranking.parquet").read_bytes() == supplies.ranking
    return call


def _with_checkpoint(supplies: Supplies, rng: random.Random, place: Path) -> Call:
    state = place / "run" / "checkpoint" / "state.safetensors"
    state.parent.mkdir(parents=True)
    state.write_bytes(supplies.checkpoint)
    _damage(state, rng)
    asked = ["rank", supplies.npz, *DEVICE, *LONG, "--out", place / "run", "--resume"]
    call = Call(asked, place, "checkpoint")
    call.harmless = lambda: (place / "run" / "ranking.parquet").read_bytes() == supplies.long
    return call


def _damage(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    if not data:
        return
    at = rng.randrange(len(data))
    way = rng.choice(["flip", "flip", "flip", "cut", "zero", "empty"])
    if way == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif way == "cut":
        del data[at:]
    elif way == "zero":
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    else:
        data.clear()
    file.write_bytes(data)


def _replace_word(file: Path, rng: random.Random) -> None:
    text = file.read_text(encoding="utf-8")
    tokens = list(re.finditer(r'"[^"]*"|-?\d+(\.\d+)?', text))
    token = rng.choice(tokens)
    text = text[: token.start()] + rng.choice(WORDS) + text[token.end() :]
    try:
        found = json.loads(text)
        found.pop("checksum", None)
        text = json.dumps(found)
    except ValueError:
        pass
    file.write_text(text, encoding="utf-8")


KINDS: dict[str, Callable[[Supplies, random.Random, Path], Call]] = {
    "options": with_options,
    "arrays": with_arrays,
    "manifest": with_manifest,
    "run": with_run,
    "cache": with_cache,
}
