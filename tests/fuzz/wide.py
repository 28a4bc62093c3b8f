"""Calls of every command of the parser, with data, run folders and files changed at random."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fuzz import contents, oddities
from fuzz.supplies import DEVICE, QUICK, Call, Supplies

# These serve until they are stopped, or take minutes as they are meant to.
_NOT_CALLED = {"review", "demo"}
_SHORT = {"bench run", "bench results", "bench plant"}
# Large values of these are work that was asked for, not a fault.
_WORK = {"epochs", "tune_seconds", "tune-seconds", "seeds", "jobs", "n"}
_SMALL = ("-1", "0", "1", "2", "nan", "inf", "1e400", "9" * 30, str(2**64), "x", "", "1.5", "-0")


class Wide:
    """What wide calls start from beside `Supplies`; made when it is first asked for."""

    def __init__(self, supplies: Supplies) -> None:
        self.supplies, self.root = supplies, supplies.root
        self.images = supplies.table.parent / "images"

    @cached_property
    def places(self) -> list[Path]:
        good = [
            self.supplies.npz,
            self.supplies.pets,
            self.supplies.table,
            self.supplies.model,
            self.supplies.ranked,
            self.audited,
        ]
        return [*oddities.odd_places(self.root / f"odd-{os.getpid()}"), *good, *good]

    @cached_property
    def audited(self) -> Path:
        """A run with patterns, a report and verdicts."""
        from sebra.checksums import of_file
        from sebra.samples.verdicts import Verdicts

        run = self.supplies._made("audit", "demo?n=300", *DEVICE, "--backbone", "random")
        table = self.ranking_of(run)
        said = Verdicts(
            {"run": run.name, "data": "demo?n=300", "ranking": of_file(run / "ranking.parquet")}
        )
        said.patterns["stage_1"] = {"verdict": "shortcut", "note": "x"}
        said.suspects[str(table["id"][0])] = {"verdict": "wrong"}
        said.marks[str(table["id"][1])] = {"verdict": "relabel", "label": str(table["label"][2])}
        said.save(run / "verdicts.json")
        return run

    @cached_property
    def painted(self) -> Path:
        """A model of pictures."""
        return self.supplies._made(
            "debias", self.supplies.pets, *QUICK, "--method", "erm", "--backbone", "random"
        )

    @staticmethod
    def ranking_of(run: Path) -> Any:
        import pandas as pd

        return pd.read_parquet(run / "ranking.parquet")

    @cached_property
    def commands(self) -> dict[str, Any]:
        """Every command of the parser by its words."""
        import typer

        from sebra.cli.main import app

        found: dict[str, Any] = {}

        def walk(command: Any, words: list[str]) -> None:
            for name, inner in getattr(command, "commands", {}).items():
                walk(inner, [*words, name])
            name = " ".join(words)
            long = words[:1] == ["bench"] and name not in _SHORT
            if words and not (hasattr(command, "commands") or long or name in _NOT_CALLED):
                found[name] = command

        walk(typer.main.get_command(app), [])
        return found


def anything(wide: Wide, rng: random.Random, place: Path) -> Call:
    """Any command with any of its options."""
    name = rng.choice(sorted(wide.commands))
    command = wide.commands[name]
    arguments: list[object] = [*name.split()]
    options = [p for p in command.params if p.param_type_name != "argument"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            arguments.append(_argument(wide, rng, parameter.name))
    if any(p.name == "device" for p in options):
        arguments += DEVICE
    if any(p.name in ("set_", "settings") for p in options):
        arguments += ["--set", "epochs=2"]
    if name == "bench run":
        arguments += ["--methods", "erm", "--seeds", "1"]
    if name == "data make urbancars":
        for part in ("--cars", "--backgrounds", "--objects"):
            arguments += [part, rng.choice([wide.supplies.pets, *wide.places])]
        arguments += ["--counts", "8,8,8"]
    for parameter in rng.sample(options, min(len(options), rng.choice([1, 1, 1, 2]))):
        if parameter.is_flag:
            arguments.append(parameter.opts[0])
        else:
            arguments += [parameter.opts[0], _option(wide, rng, parameter.name, arguments)]
    if "--out" not in arguments and any(p.name == "out" for p in options):
        arguments += ["--out", place / rng.choice(["run", "made.file"])]
    return Call(arguments, place, name, _environment(rng))


def _argument(wide: Wide, rng: random.Random, name: str) -> object:
    good: list[object] = [wide.supplies.npz, wide.supplies.pets, wide.supplies.table, "demo?n=100"]
    if name in ("run", "first", "second", "target"):
        good = [wide.supplies.model, wide.supplies.ranked, wide.audited, wide.painted]
    if name == "data" and rng.random() < 0.3:
        return _layout(wide, rng)
    return rng.choice(good) if rng.random() < 0.8 else oddities.value(rng, wide.places)


def _layout(wide: Wide, rng: random.Random) -> str:
    from sebra.samples.layouts import LAYOUTS, find_layout

    found = find_layout(rng.choice(sorted(LAYOUTS)))
    path = str(rng.choice(wide.places)) if found.needs_path else ""
    out = f"{found.name}:{path}" if path else found.name
    fields = [f.name for f in dataclasses.fields(found.options)]
    if found.name == "demo":
        out += f"?n={rng.choice(['100', '120'])}"
    for _ in range(rng.choice([0, 1, 2])):
        key = rng.choice([*fields, "x"])
        chosen = rng.choice(_SMALL) if key in _WORK else oddities.value(rng, wide.places)
        out += f"{'&' if '?' in out else '?'}{key}={chosen}"
    return out


def _option(wide: Wide, rng: random.Random, name: str, arguments: list[object]) -> str:
    if name in ("set_", "settings"):
        return _setting(wide, rng, arguments)
    if name in _WORK:
        return rng.choice(_SMALL)
    known = {
        "method": ["auto", "sebra", "peel", "erm", "random", "neurons", "stages", "dfr", "lff"],
        "rank_method": ["sebra", "peel", "erm", "random", "neurons", "auto"],
        "methods": [
            "erm,erm",
            "erm,",
            "erm,nothing",
            "erm[lr=0.1]",
            "erm[lr=x]",
            "erm[",
            "sebra[]",
        ],
        "format_": ["csv", "npz", "onnx", "json", "jsonl", "parquet", "torch", "card", "md"],
        "preset": ["paper/urbancars", "best/urbancars", "paper/../paper/urbancars", "none"],
        "neurons": ["auto"],
        "device": ["cpu", "cuda", "auto"],
        "out": [str(wide.audited), str(wide.supplies.pets), str(wide.supplies.npz)],
    }
    if name in known and rng.random() < 0.5:
        return rng.choice(known[name])
    return oddities.value(rng, wide.places)


def _setting(wide: Wide, rng: random.Random, arguments: list[object]) -> str:
    from sebra.debiasing.registry import METHODS
    from sebra.ranking.registry import RANKERS

    known = RANKERS if arguments[0] in ("rank", "audit") else METHODS
    name = rng.choice(sorted(known))
    if arguments[0] != "bench" and "--method" not in arguments:
        arguments += ["--method", name]
    kind = known[name].load() if hasattr(known[name], "load") else known[name]
    fields = [f.name for f in dataclasses.fields(getattr(kind, "config_class", kind))]
    key = rng.choice(fields) if fields and rng.random() < 0.95 else oddities.text(rng, 20)
    chosen = rng.choice(_SMALL) if key in _WORK else oddities.value(rng, wide.places)
    return f"{'rank.' if rng.random() < 0.1 else ''}{key}={chosen}"


def _environment(rng: random.Random) -> dict[str, str]:
    if rng.random() > 0.12:
        return {}
    name = rng.choice(
        [
            "WORLD_SIZE",
            "RANK",
            "LOCAL_RANK",
            "MASTER_PORT",
            "MASTER_ADDR",
            "SEBRA_CHECKPOINT_SECONDS",
            "SEBRA_CACHE",
            "SEBRA_DATA",
            "HOME",
            "COLUMNS",
            "LINES",
            "TERM",
            "SEBRA_COMMIT",
            "TMPDIR",
            "SEBRA_RUNS_TOGETHER",
            "CUDA_VISIBLE_DEVICES",
            "NO_COLOR",
            "HF_HOME",
        ]
    )
    return {name: rng.choice(["", "abc", "-1", "0", "1e9", "/dev/null", " ", "nan", "é", "/", "2"])}


def data(wide: Wide, rng: random.Random, place: Path) -> Call:
    """Arrays, tables and folders of strangers, given to every command that reads DATA."""
    makers: list[Callable[[], Path]] = [
        lambda: contents.arrays(rng, place),
        lambda: contents.arrays(rng, place),
        lambda: contents.csv(rng, place, wide.images),
        lambda: contents.parquet(rng, place, wide.images),
        lambda: contents.folder(rng, place),
    ]
    made = rng.choice(makers)()
    given = str(made)
    if made.is_file() and made.suffix != ".npz" and rng.random() < 0.15:
        given += rng.choice(
            ["?label=cue", "?label=label", "?x=y", "?label=", "?", "?text=label", "?path=a&label=b"]
        )
    out = ["--out", place / "run"]
    numbers = made.suffix == ".npz" or (made / "X.npy").exists()
    network = [] if numbers else ["--backbone", "random"]
    small = [*QUICK, *network]
    command: list[list[object]] = [
        ["data", "check", given],
        ["data", "check", given, "--quick"],
        ["rank", given, *small, *out],
        ["rank", given, *small, "--method", rng.choice(["erm", "random"]), *out],
        ["rank", given, *DEVICE, *network, "--method", "peel", *out],
        [
            "debias",
            given,
            *small,
            "--method",
            rng.choice(["erm", "sebra", "lff", "dfr", "groupdro", "jtt"]),
            *out,
        ],
        ["debias", given, *DEVICE, *network, *out],
        ["audit", given, *DEVICE, *network, *out],
        ["predict", rng.choice([wide.supplies.model, wide.painted]), given, *DEVICE],
        ["evaluate", rng.choice([wide.supplies.model, wide.supplies.ranked]), given, *DEVICE],
        ["debias", given, "--ranking", wide.supplies.ranked, *small, *out],
    ]
    return Call(rng.choice(command), place, f"{made.name!r}")


def makers(supplies: Supplies) -> dict[str, Callable[[random.Random, Path], Call]]:
    """The wide kinds of calls by name."""
    from fuzz.strangers import entry, option_files, stranger

    wide = Wide(supplies)
    made = {
        "anything": anything,
        "data": data,
        "stranger": stranger,
        "files": option_files,
        "entry": entry,
    }
    return {name: partial(make, wide) for name, make in made.items()}
