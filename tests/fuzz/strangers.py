"""Run folders, option files and cache entries as strangers may hand them over."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

from fuzz import oddities
from fuzz.supplies import DEVICE, QUICK, Call
from fuzz.wide import Wide

_MARKS = (*("keep", "drop", "relabel", "spurious") * 20, "")


def stranger(wide: Wide, rng: random.Random, place: Path) -> Call:
    """A run folder whose files were changed, as a whole and with checksums that fit."""
    good, given = rng.choice(
        [
            (wide.supplies.model, wide.supplies.npz),
            (wide.supplies.ranked, wide.supplies.pets),
            (wide.audited, "demo?n=300"),
            (wide.painted, wide.supplies.pets),
        ]
    )
    run = place / "run"
    shutil.copytree(good, run)
    files = sorted(p for p in run.iterdir() if p.is_file() and p.suffix != ".html")
    chosen = rng.choice(files)
    _change(chosen, rng)
    sealed = rng.random()
    if sealed < 0.5:
        _seal_again(run)
    elif sealed < 0.75:
        shutil.rmtree(run / "checksums.json", ignore_errors=True)
        (run / "checksums.json").unlink(missing_ok=True)
    out = ["--out", place / "made"]
    kind = rng.choice(
        ["csv", "npz", "onnx", "json", "jsonl", "torch", "card", "parquet", "fiftyone", "datumaro"]
    )
    commands: list[list[object]] = [
        ["report", run, "--out", place / "r.html"],
        ["verify", run],
        ["evaluate", run, given, *DEVICE],
        ["predict", run, given, *DEVICE],
        ["export", run, "--format", kind, "--out", place / "file"],
        ["compare", run, good, given, *DEVICE],
        ["compare", good, run, *DEVICE],
        ["check", run, *DEVICE],
        ["check", run, "--baseline", good, *DEVICE],
        ["check", good, "--baseline", run, *DEVICE],
        [
            "debias",
            given,
            "--ranking",
            run,
            *QUICK,
            "--backbone",
            "random",
            "--method",
            "sebra",
            *out,
        ],
        ["debias", given, "--ranking", run, *QUICK, "--verdicts", run / "verdicts.json", *out],
        ["rank", given, *QUICK, "--backbone", "random", "--exclude", run / "verdicts.json", *out],
        ["rank", given, *QUICK, "--backbone", "random", "--out", run, "--resume"],
        [
            "audit",
            given,
            *QUICK,
            "--backbone",
            "random",
            "--method",
            "sebra",
            "--predictions",
            run,
            *out,
        ],
        ["data", "check", run],
    ]
    call = Call(rng.choice(commands), place, f"{chosen.name} of {good.name}")
    call.finds = {"verify", "check"}
    return call


def _change(file: Path, rng: random.Random) -> None:
    """Changes what a file says while it stays a file of its kind."""
    import pandas as pd

    if rng.random() < 0.05:
        file.unlink()
        rng.choice(
            [file.mkdir, lambda: file.symlink_to(file), lambda: file.symlink_to("/dev/zero")]
        )()
        return
    if file.suffix == ".json":
        found = oddities.changed_json(json.loads(file.read_text(encoding="utf-8")), rng)
        file.write_text(json.dumps(found), encoding="utf-8", errors="surrogatepass")
    elif file.suffix == ".toml":
        try:
            import tomllib
        except ImportError:
            import tomli as tomllib  # type: ignore[no-redef]
        found = oddities.changed_json(tomllib.loads(file.read_text(encoding="utf-8")), rng)
        text = oddities.toml_text(found) if isinstance(found, dict) else json.dumps(found)
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
    elif file.suffix == ".parquet":
        table = oddities.changed_table(pd.read_parquet(file), rng)
        try:
            table.to_parquet(file)
        except Exception:
            table.astype(str).to_parquet(file)
    elif file.suffix == ".safetensors":
        _change_tensors(file, rng)
    elif file.suffix == ".csv":
        text = file.read_text(encoding="utf-8")
        at = rng.randrange(len(text) + 1)
        file.write_text(
            text[:at] + oddities.text(rng, 40, nul=True) + text[at:], "utf-8", "surrogatepass"
        )
    else:
        file.write_bytes(rng.randbytes(100))


def _change_tensors(file: Path, rng: random.Random) -> None:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(file, "pt") as opened:
        facts = opened.metadata() or {}
        held = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    name = rng.choice(sorted(held))
    old = held[name]
    way = rng.choice(["drop", "nan", "half", "shape", "rename", "facts", "int", "zero"])
    if way == "drop":
        del held[name]
    elif way == "nan" and old.is_floating_point():
        held[name] = torch.full_like(old, float("nan"))
    elif way == "half":
        held[name] = old.to(torch.float16)
    elif way == "shape":
        held[name] = torch.zeros(rng.choice([(), (0,), (3,), (2, 2), (1, 1, 1)]))
    elif way == "rename":
        held[oddities.text(rng, 20).encode("utf-8", "replace").decode() or "x"] = held.pop(name)
    elif way == "int":
        held[name] = torch.zeros(old.shape, dtype=torch.int64)
    elif way == "zero":
        held[name] = torch.zeros_like(old)
    elif facts:
        key = rng.choice(sorted(facts))
        facts[key] = rng.choice(["", "{}", "[]", "null", "1e999", "x" * 1000, facts[key][:-1]])
    save_file(held, file, facts)


def _seal_again(run: Path) -> None:
    """The checksums of a stranger who took care."""
    from sebra.errors import SebraError
    from sebra.runs.folder import RunFolder
    from sebra.runs.seal import seal

    if any(p.is_symlink() or p.is_dir() for p in run.iterdir()):
        return
    (run / "checksums.json").unlink(missing_ok=True)
    try:
        config = RunFolder(run).read_config()
    except SebraError:
        config = {}
    try:
        seal(run, config)
    except (ValueError, TypeError):  # what JSON cannot hold
        return


def option_files(wide: Wide, rng: random.Random, place: Path) -> Call:
    """Files that options name: marks, verdicts, presets, neurons, predictions and more."""
    verdicts = json.loads((wide.audited / "verdicts.json").read_text(encoding="utf-8"))
    table = Wide.ranking_of(wide.audited)
    ids, names = table["id"].tolist(), table["label"].tolist()
    neurons = {n: [{"neuron": 0, "importance": 0.1, "spurious": True}] for n in sorted(set(names))}
    preset = {
        "mode": "features",
        "rank": {"lr": 0.1, "sebra": {"beta": 1.2}},
        "debias": {"epochs": 2},
        "network": {"rank_mode": "same"},
    }
    ranked = ["rank", "demo?n=300", *QUICK, "--backbone", "random", "--out", place / "made"]
    file = place / "given"
    way = rng.choice(
        ["verdicts", "marks", "neurons", "preset", "predictions", "config", "weights", "ranking"]
    )
    if way == "verdicts":
        file = _json_file(place / "v.json", verdicts, rng)
        return Call(
            rng.choice(
                [
                    [*ranked, "--exclude", file],
                    [*ranked, "--verdicts", file],
                    ["check", wide.audited, "--verdicts", file, *DEVICE],
                ]
            ),
            place,
            way,
            finds={"check"},
        )
    if way == "marks":
        rows = [f"{i},{rng.choice(_MARKS)},{n}" for i, n in zip(ids, names, strict=True)]
        file = _text_file(place / "m.csv", "id,mark,label\n" + "\n".join(rows[:40]), rng)
        return Call([*ranked, "--exclude", file], place, way)
    if way == "neurons":
        file = _json_file(place / "n.json", neurons, rng)
        return Call([*ranked, "--method", "neurons", "--neurons", file], place, way)
    if way == "preset":
        found = oddities.changed_json(preset, rng)
        file = place / "p.toml"
        text = oddities.toml_text(found) if isinstance(found, dict) else "x"
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        return Call([*ranked, "--preset", file], place, way)
    if way == "predictions":
        lines = [f"{i},{n}" for i, n in zip(ids, names, strict=True)]
        file = _text_file(place / "p.csv", "id,prediction\n" + "\n".join(lines), rng)
        asked = rng.choice(
            [
                ["check", wide.audited, "--predictions", file, *DEVICE],
                [
                    "audit",
                    "demo?n=300",
                    *QUICK,
                    "--backbone",
                    "random",
                    "--method",
                    "sebra",
                    "--predictions",
                    file,
                    "--out",
                    place / "made",
                ],
            ]
        )
        return Call(asked, place, way, finds={"check"})
    if way == "config":
        found = oddities.changed_json(
            {"largest_drop": 5, "suspects": 3, "check": {"worst_group": 10}}, rng
        )
        file = place / "c.toml"
        file.write_text(
            oddities.toml_text(found) if isinstance(found, dict) else "x", "utf-8", "surrogatepass"
        )
        return Call(["check", wide.audited, "--config", file, *DEVICE], place, way, finds={"check"})
    if way == "weights":
        file = place / "w.safetensors"
        shutil.copy(rng.choice([wide.supplies.model, wide.painted]) / "model.safetensors", file)
        if rng.random() < 0.7:
            _change_tensors(file, rng)
        return Call(
            [
                "rank",
                wide.supplies.pets,
                *QUICK,
                "--backbone",
                rng.choice(["small", "resnet18", "random"]),
                "--image-size",
                "16",
                "--weights",
                file,
                "--out",
                place / "made",
            ],
            place,
            way,
        )
    file = place / "r.parquet"
    shutil.copy(wide.audited / "ranking.parquet", file)
    _change(file, rng)
    return Call(
        [
            "debias",
            "demo?n=300",
            *QUICK,
            "--backbone",
            "random",
            "--method",
            "sebra",
            "--ranking",
            file,
            "--out",
            place / "made",
        ],
        place,
        way,
    )


def _json_file(file: Path, value: Any, rng: random.Random) -> Path:
    found = json.dumps(oddities.changed_json(value, rng))
    file.write_text(found, encoding="utf-8", errors="surrogatepass")
    return file


def _text_file(file: Path, text: str, rng: random.Random) -> Path:
    for _ in range(rng.choice([0, 1, 2])):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + oddities.text(rng, 40, nul=True) + text[at + rng.choice([0, 1, 30]) :]
    file.write_bytes(
        text.encode(rng.choice(["utf-8"] * 6 + ["utf-8-sig", "utf-16"]), "surrogatepass")
    )
    return file


def entry(wide: Wide, rng: random.Random, place: Path) -> Call:
    """An entry of the cache of another version: what it says is whole, but not what is expected."""
    cache = place / "cache"
    shutil.copytree(wide.root / "cache", cache, ignore=shutil.ignore_patterns(".*"))
    found = sorted(p for p in cache.rglob("meta.json"))
    file = rng.choice(found)
    meta = json.loads(file.read_text(encoding="utf-8"))
    meta.pop("checksum", None)
    way = rng.random()
    if way < 0.6:
        changed = oddities.changed_json(meta, rng)
        meta = changed if isinstance(changed, dict) else {}
    else:
        _change_array(file.with_name("array.npy"), rng)
    from sebra.loading.cache import _checksum

    file.write_text(json.dumps({**meta, "checksum": _checksum(file.with_name("array.npy"), meta)}))
    call = Call(
        ["rank", wide.supplies.pets, *QUICK, "--backbone", "random", "--out", place / "run"],
        place,
        str(file.parent.parent.name),
    )
    call.environment = {"SEBRA_CACHE": str(cache)}
    return call


def _change_array(file: Path, rng: random.Random) -> None:
    import numpy as np

    old = np.load(file)
    new: Any = rng.choice(
        [old[:-1], old.astype(">f8"), old[..., None], np.zeros_like(old), old.T, np.zeros(0)]
    )
    np.save(file, new)
