"""Odd values of every kind: texts, numbers at and over limits, JSON and tables changed at random.

Nothing here looks at what the readers accept: values come from the whole of their type.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import string
from pathlib import Path
from typing import Any

import numpy as np

_ALPHABETS = (
    string.printable.strip(),
    "\u202e\u200b\ufeff\u00e9\u00df\u0130\u4e2d\U0001f984\u0301",
    "\x01\x07\x08\x1b\x7f\r\n\t",
    "\udcff\ud800\udfff",
    "=+-@'\"`$<>&;|%{}[]()\\/:?*#!,",
)
_WORDS = (
    "", " ", "none", "None", "null", "auto", "true", "False", "nan", "inf", "-inf", "hub", "random",
    "small", "resnet18", "features", "finetune", "train", "test", "cpu", "cuda", "cuda:99", "mps",
    "meta", ".", "..", "../..", "/", "//", "~", "~root", "~nobody", "-", "--", "-h", "--help", "*",
    "[red]x[/red]", "{0}", "%s", "%n", "$HOME", "a,b", ",", ",,a", "a=b", "=", "rank.", "CON",
    "https://example.invalid/x", "file:///etc/passwd", "s3://x/y", "hf:", "hf:a", "hf:a/b", "demo",
    "/dev/null", "/dev/zero", "/dev/full", "/dev/stdin", "/proc/self/mem", "/proc", "/root", "/etc",
)  # fmt: skip


_DATES = ("1979-05-27", "07:32:00", "1979-05-27T07:32:00Z")  # values of their own in TOML


def text(rng: random.Random, longest: int = 300, nul: bool = False) -> str:
    """Any text; without a NUL it can be an argument of a process."""
    size = rng.choice([0, 1, 1, 2, 5, 20, longest])
    alphabet = rng.choice(_ALPHABETS)
    found = "".join(rng.choice(alphabet) for _ in range(size))
    return found + "\0" + found if nul and rng.random() < 0.2 else found


def number(rng: random.Random) -> str:
    """A number as people, programs and other languages write it."""
    way = rng.randrange(8)
    if way == 0:
        return str(
            rng.choice([-1, 1]) * rng.getrandbits(rng.choice([1, 2, 4, 8, 31, 32, 63, 64, 200]))
        )
    if way == 1:
        return repr(rng.choice([-1, 1]) * 10 ** rng.uniform(-330, 308))
    if way == 2:
        return repr(rng.uniform(-2, 2))
    if way == 3:
        return rng.choice(
            [
                "1_000",
                "٣",
                "１２",
                "1e5",
                "+3",
                " 3",
                "3 ",
                "0x10",
                "1e-400",
                "1e400",
                "1,5",
                "1.",
                ".5",
                "½",
                "1e",
                "0b1",
                "010",
                "--1",
                "1L",
                "-0",
                "3\n",
                "9" * 400,
                "9" * 5000,
                "-" + "9" * 400,
            ]
        )
    return limit(rng)


def limit(rng: random.Random) -> str:
    """At, just below and just above an end of one of the ranges that are promised."""
    from sebra.values import LIMITS, Range

    found = [r for r in LIMITS.values() if isinstance(r, Range)]
    end = rng.choice([getattr(rng.choice(found), e) for e in ("least", "most")])
    near = (end, end - 1, end + 1, math.nextafter(end, -math.inf), math.nextafter(end, math.inf))
    chosen = rng.choice(near)
    return str(int(chosen)) if float(chosen).is_integer() and rng.random() < 0.7 else repr(chosen)


def value(rng: random.Random, places: list[Path]) -> str:
    """What may stand after an option."""
    way = rng.random()
    if way < 0.35:
        return number(rng)
    if way < 0.6:
        return rng.choice(_WORDS)
    if way < 0.8:
        return str(rng.choice(places))
    return text(rng, 5000).replace("\0", "")


def odd_places(root: Path) -> list[Path]:
    """Things of a file system that are no ordinary files."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / "empty").touch()
    (root / "empty-folder").mkdir()
    (root / "loop").symlink_to(root / "loop")
    (root / "around").symlink_to(root)
    (root / "dangling").symlink_to(root / "nowhere")
    os.mkfifo(root / "fifo")
    (root / "text.txt").write_text("hello", encoding="utf-8")
    (root / "noise.bin").write_bytes(random.Random(0).randbytes(3000))
    for suffix in ("csv", "tsv", "parquet", "npz", "json", "toml", "safetensors", "png"):
        (root / f"noise.{suffix}").write_bytes(random.Random(suffix).randbytes(500))
        (root / f"empty.{suffix}").touch()
        (root / f"folder.{suffix}").mkdir()
        (root / f"pipe.{suffix}").symlink_to(root / "fifo")
        (root / f"zeros.{suffix}").symlink_to("/dev/zero")
    locked = root / "locked"
    locked.mkdir()
    locked.chmod(0o000)
    return [*sorted(root.iterdir()), root / "not-there", root / ("n" * 300), root / "a" / "b" / "c"]


def json_value(rng: random.Random, depth: int = 0) -> Any:
    """Any value that JSON can hold, and what Python's reader takes beside it."""
    way = rng.randrange(9 if depth < 3 else 6)
    if way == 0:
        return rng.choice([None, True, False])
    if way == 1:
        return rng.choice([0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**300, 10**400, -(10**400)])
    if way == 2:
        return rng.choice([0.0, -0.5, 1e-320, 1e308, math.nan, math.inf, -math.inf])
    if way in (3, 4):
        return rng.choice(
            [text(rng, 100, nul=True), rng.choice(_WORDS), "demo?n=100000000", rng.choice(_DATES)]
        )
    if way == 5:
        return rng.choice([[], {}, "", [[]], [None]])
    if way == 6:
        return [json_value(rng, depth + 1) for _ in range(rng.choice([1, 2, 30]))]
    if way == 7:
        return {text(rng, 20): json_value(rng, depth + 1) for _ in range(rng.choice([1, 3]))}
    deep: Any = 0
    for _ in range(rng.choice([20, 80])):
        deep = [deep]
    return deep


def _nodes(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            _nodes(value[key], found)
    return found


def changed_json(value: Any, rng: random.Random) -> Any:
    """The same value with one to three of its parts replaced, removed, doubled or renamed."""
    value = json.loads(json.dumps(value))
    if rng.random() < 0.03 or not isinstance(value, (dict, list)):
        return json_value(rng)
    for _ in range(rng.choice([1, 1, 2, 3])):
        nodes = _nodes(value, [])
        if not nodes:
            break
        holder, key = rng.choice(nodes)
        way = rng.choice(["other", "other", "other", "remove", "rename", "type"])
        if way == "remove":
            del holder[key]
        elif way == "rename" and isinstance(holder, dict):
            holder[text(rng, 20)] = holder.pop(key)
        elif way == "type":
            old = holder[key]
            holder[key] = rng.choice([[old], {"x": old}, str(old), None, [old, old], [old] * 2000])
        else:
            holder[key] = json_value(rng)
    return value


def toml_text(value: Any) -> str:
    """TOML of what a JSON value can say in it; now and then nested deeper than a reader may go."""
    lines, tables = [], []
    for key, held in value.items():
        name = json.dumps(str(key)).replace("\x7f", "\\u007f")
        if isinstance(held, dict):
            tables += [
                f"[{name}]",
                *(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in held.items()),
            ]
        else:
            lines.append(f"{name} = {_toml(held)}")
    return "\n".join([*lines, *tables]) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str) and value in _DATES:
        return value
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "inf", "-inf": "-inf"}.get(str(value), "nan")
    if value is None:
        return '""'
    return json.dumps(value).replace("\x7f", "\\u007f")


def changed_table(table: Any, rng: random.Random) -> Any:
    """A frame with columns dropped, renamed, retyped or filled with something else."""
    table = table.copy()
    for _ in range(rng.choice([1, 1, 2])):
        if not len(table.columns):
            break
        name = rng.choice(list(table.columns))
        way = rng.choice(["drop", "rename", "rows", "fill", "type", "values", "values", "order"])
        if way == "drop":
            table = table.drop(columns=name)
        elif way == "rename":
            table = table.rename(columns={name: text(rng, 20).encode("utf-8", "replace").decode()})
        elif way == "rows":
            count = rng.choice([0, 1, 2, len(table) - 1])
            table = table.iloc[: max(0, count)]
        elif way == "fill":
            table[name] = rng.choice([None, math.nan, -1, 2**62, 0.5, "x", True, b"\xff", "a\0b"])
        elif way == "type":
            kind = rng.choice(["object", "str", "float16", "int8", "bool", "category", "complex64"])
            with np.errstate(all="ignore"):
                try:
                    table[name] = table[name].astype(kind)
                except (TypeError, ValueError):
                    table[name] = [[1, 2]] * len(table)
        elif way == "order":
            table = table.sample(frac=1, random_state=rng.randrange(100))
        else:
            values = list(table[name])
            for _ in range(rng.choice([1, 3])):
                if values:
                    values[rng.randrange(len(values))] = rng.choice(
                        [None, math.nan, math.inf, -1, 10**6, values[0], "?", "", 1e300, 2**62]
                    )
            table[name] = np.array(values, dtype=object)
            if rng.random() < 0.5:
                table[name] = table[name].infer_objects()
    return table
