"""Data made at random: arrays, tables and folders of every type, layout and name."""

from __future__ import annotations

import contextlib
import io
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import miniatures
from fuzz.oddities import text

_TYPES = (
    "f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
    "longdouble",
    "i1",
    "<i2",
    ">i2",
    "<i4",
    ">i4",
    "<i8",
    ">i8",
    "u1",
    "<u2",
    ">u2",
    "<u4",
    "<u8",
    ">u8",
    "?",
    "c8",
    "c16",
    "S1",
    "S8",
    "U1",
    "U5",
    "O",
    "M8[s]",
    "M8[D]",
    "m8[s]",
    "V8",
    [("a", "f4"), ("b", "i8")],
    [("a", "f4", (2,))],
)
_SHAPES = (
    (40, 4),
    (40, 4),
    (40, 4),
    (40, 1),
    (4, 2),
    (3, 2),
    (2, 2),
    (1, 3),
    (0, 3),
    (40, 0),
    (0, 0),
    (30, 2000),
    (500, 2),
    (40,),
    (),
    (2, 20, 3),
    (6, 8, 8, 3),
    (1, 1, 1, 1, 1),
)


def array(rng: random.Random, shape: tuple[int, ...] | None = None) -> Any:
    """An array of any type, shape, layout and scale."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    shape = rng.choice(_SHAPES) if shape is None else shape
    scale = rng.choice([1, 1, 1, 1, 0, 1e-40, 1e-30, 1e10, 1e29, 1e30, 1e38, 1e200, 1e308])
    with np.errstate(all="ignore"):
        values = numbers.normal(size=shape) * scale + rng.choice([0, 0, 0, 7, -1e6, 1e15])
        if rng.random() < 0.15 and values.size:
            values.reshape(-1)[rng.randrange(values.size)] = rng.choice([np.nan, np.inf, -np.inf])
        if rng.random() < 0.2:
            values = np.round(values)
        kind = rng.choice([*_TYPES, "<f4", "<f4", "<f8"])
        try:
            out = values.astype(kind)
        except (TypeError, ValueError, OverflowError):
            out = np.zeros(shape, dtype=kind)
    return _laid_out(np.asarray(out), rng)


def _laid_out(values: Any, rng: random.Random) -> Any:
    way = rng.randrange(8)
    if way == 0:
        return np.asfortranarray(values)
    if way == 1 and values.ndim:
        return np.repeat(values, 2, axis=0)[::2]
    if way == 2 and values.ndim:
        return values[::-1]
    if way == 3:
        return values.T
    return values


def labels(rng: random.Random, n: int) -> Any:
    """n labels: few or thousands of classes, of any type."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    count = rng.choice([1, 2, 2, 2, 2, 3, 5, max(1, n // 2), max(1, n), 3000])
    codes = numbers.integers(0, count, n)
    if rng.random() < 0.5 and n:
        codes = np.arange(n) % count
    names = [text(rng, 40, nul=True) for _ in range(min(count, 50))]
    words = np.array([names[c % len(names)] for c in codes.tolist()] or [""], dtype=object)[:n]
    kinds: list[Callable[[], Any]] = [
        lambda: codes,
        lambda: codes,
        lambda: codes.astype(bool),
        lambda: codes.astype(">i4"),
        lambda: codes.astype("u8"),
        lambda: codes.astype("f2"),
        lambda: codes.astype("longdouble"),
        lambda: codes + 0.5,
        lambda: codes.astype("c8"),
        lambda: codes.astype("M8[D]"),
        lambda: codes.astype("S"),
        lambda: codes.astype("U"),
        lambda: words,
        lambda: np.array([w.encode("utf-8", "surrogatepass") for w in words.tolist()] or [b""])[:n],
        lambda: np.array([w.encode("utf-16", "surrogatepass") for w in words.tolist()] or [b""])[
            :n
        ],
        lambda: words.astype("U"),
        lambda: codes[:, None],
        lambda: np.eye(max(count, 1))[codes],
        lambda: np.where(codes > 0, np.nan, 1.0),
        lambda: np.full(n, np.inf),
        lambda: codes - 5,
        lambda: codes.astype("i8") * 2**61,
        lambda: codes.astype("f8") * 1e300,
        lambda: np.array([None if c else "x" for c in codes.tolist()] or [None], dtype=object)[:n],
        lambda: np.array(3),
        lambda: codes.astype("V8"),
    ]
    with np.errstate(all="ignore"):
        return rng.choice(kinds)()


def arrays(rng: random.Random, place: Path) -> Path:
    """An archive or a folder of arrays, some with more in them or less."""
    # One part is odd at a time, more often than not: what is refused at once reaches nothing else.
    odd = rng.random()
    x = array(rng, (40, 4) if odd < 0.4 else None) if odd < 0.7 else _sound(rng)
    n = len(x) if x.ndim else 1
    y = np.arange(n) % 2 if odd < 0.4 else labels(rng, n + rng.choice([0, 0, 0, 0, 0, 1]))
    held: dict[str, Any] = {"X": x, "y": y}
    if rng.random() < 0.4:
        numbers = np.random.default_rng(rng.getrandbits(32)).integers(0, rng.choice([2, 3, 4]), n)
        words = np.array(["train", "val", "test", "Train ", ""])[numbers]
        held["split"] = rng.choice([numbers, words, words.astype("S6"), words.astype(object), x])
    for _ in range(rng.choice([0, 1, 3])):
        name = rng.choice(["cue", text(rng, 30), "id", "label", "Y", "x", "X.npy", "../up", "a/b"])
        held[name] = rng.choice([labels(rng, n), array(rng)])
    if rng.random() < 0.1:
        held.pop(rng.choice(list(held)))
    if rng.random() < 0.03:
        held = {}
    return _archive(held, rng, place) if rng.random() < 0.5 else _folder(held, rng, place)


def _sound(rng: random.Random) -> Any:
    return np.random.default_rng(rng.getrandbits(32)).normal(size=(rng.choice([40, 200]), 4))


def _npy(value: Any, rng: random.Random) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(value), rng.choice([None, (2, 0), (3, 0)]))
    data = bytearray(out.getvalue())
    if rng.random() < 0.08:
        way = rng.randrange(4)
        at = rng.randrange(len(data))
        if way == 0:
            del data[at:]
        elif way == 1:
            data[rng.randrange(min(len(data), 100))] ^= 1 << rng.randrange(8)
        elif way == 2:
            data = bytearray(bytes(data).replace(b"'shape': (", b"'shape': (9999999999, ", 1))
        else:
            data += b"\0" * 50
    return bytes(data)


def _archive(held: dict[str, Any], rng: random.Random, place: Path) -> Path:
    data = place / rng.choice(["x.npz", "x.NPZ", "a b.npz", "-x.npz", "é.npz"])
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, value in held.items():
            safe = name.encode("utf-8", "replace").decode().replace("\0", "")
            archive.writestr(f"{safe}.npy", _npy(value, rng))
        if rng.random() < 0.1:
            archive.writestr(rng.choice(["readme.txt", "y.npy", "X", "folder/", " "]), b"hello")
    return data


def _folder(held: dict[str, Any], rng: random.Random, place: Path) -> Path:
    data = place / "arrays"
    data.mkdir()
    for name, value in held.items():
        safe = "".join(c for c in name if c not in "/\0").encode("utf-8", "replace")[:200]
        (data / f"{os.fsdecode(safe)}.npy").write_bytes(_npy(value, rng))
    if rng.random() < 0.1:
        extra = data / rng.choice(["X.npy", "y.npy", "split.npy", "z.npy"])
        extra.unlink(missing_ok=True)
        rng.choice([extra.mkdir, lambda: os.mkfifo(extra), lambda: extra.symlink_to(extra)])()
    return data


def csv(rng: random.Random, place: Path, images: Path) -> Path:
    """A text that is more or less a table, in one encoding or another."""
    n = rng.choice([0, 1, 2, 12, 12, 12, 12, 40])
    columns = ["path", "label"] if rng.random() < 0.5 else ["a", "b", "label"]
    if rng.random() < 0.2:
        columns = rng.choice(
            [["text", "label"], ["text", "text_b", "label"], ["path", "text", "label"]]
        )
    for _ in range(rng.choice([0, 0, 1, 2, 200 if rng.random() < 0.2 else 1])):
        columns.append(
            rng.choice(["split", "id", "cue", "label", "path", "", " ", text(rng, 20), "1"])
        )
    rows = [[_cell(c, i, rng, images) for c in columns] for i in range(n)]
    if rng.random() < 0.15 and rows:
        rows[rng.randrange(n)] = [text(rng, 30)] * rng.choice([0, 1, len(columns) + 3])
    separator = rng.choice([",", ",", ",", ",", "\t", ";", "|"])
    lines = [separator.join(map(str, row)) for row in [columns, *rows]]
    ending = rng.choice(["\n", "\n", "\r\n", "\r", "\n\n"])
    whole = ending.join(lines) + rng.choice(["", ending])
    if rng.random() < 0.05:
        whole = rng.choice(
            ["", "\n", ",", "label", "\0" * 100, '"', '"' * 3, "label\n" + "a" * 200_000]
        )
    encoding = rng.choice(
        ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1", "utf-32-be"]
    )
    data = whole.encode(
        encoding, rng.choice(["replace", "surrogatepass"]) if "utf" in encoding else "replace"
    )
    if rng.random() < 0.05:
        data = data[: len(data) // 2] + b"\0" + data[len(data) // 2 :]
    suffix = rng.choice(["csv", "csv", "tsv" if separator == "\t" else "csv", "CSV", "parquet"])
    file = place / f"{rng.choice(['t', 'a b', '-t', 'é', '=t'])}.{suffix}"
    file.write_bytes(data)
    return file


def _cell(column: str, row: int, rng: random.Random, images: Path) -> str:
    odd = rng.random() < 0.03
    if odd:
        return rng.choice(
            [
                "",
                "NA",
                "nan",
                "inf",
                "-1",
                "1e999",
                "9" * 40,
                "/dev/zero",
                text(rng, 60),
                '"',
                "a\0b",
                "2020-01-01",
                "1,5",
                "True",
                "../../x.png",
                "x" * 5000,
                "~/x.png",
            ]
        )
    if column == "path":
        return str(images / f"{row % 12}.png")
    if column == "split":
        return rng.choice(["train", "train", "train", "val", "test"])
    if column in ("a", "b"):
        return repr(rng.gauss(row % 2, 1))
    return ("cat", "dog")[row % 2] if column == "label" else f"{column} {row}"[:50]


def parquet(rng: random.Random, place: Path, images: Path) -> Path:
    """A table of any of arrow's types."""
    import datetime
    import decimal

    import pyarrow as pa
    from pyarrow import parquet as pq

    n = rng.choice([0, 1, 12, 12, 12, 40])
    names = [str(images / f"{i % 12}.png") for i in range(n)]
    kinds: list[Callable[[], Any]] = [
        lambda: pa.array([("a", "b")[i % 2] for i in range(n)]),
        lambda: pa.array([i % 2 for i in range(n)], pa.int8()),
        lambda: pa.array([i % 2 for i in range(n)], pa.uint64()),
        lambda: pa.array([float(i % 2) for i in range(n)], pa.float32()),
        lambda: pa.array(np.arange(n).astype("f2") % 2),
        lambda: pa.array([bool(i % 2) for i in range(n)]),
        lambda: pa.array([decimal.Decimal(i % 2) for i in range(n)], pa.decimal128(10, 2)),
        lambda: pa.array([datetime.date(2020, 1, 1 + i % 2) for i in range(n)]),
        lambda: pa.array(
            [datetime.datetime(2020, 1, 1 + i % 2) for i in range(n)], pa.timestamp("ns", "UTC")
        ),
        lambda: pa.array([datetime.time(i % 2) for i in range(n)]),
        lambda: pa.array([datetime.timedelta(i % 2) for i in range(n)]),
        lambda: pa.array([b"\xff\xfe" if i % 2 else b"a" for i in range(n)]),
        lambda: pa.array([b"ab" for i in range(n)], pa.binary(2)),
        lambda: pa.array([[i, 2] for i in range(n)]),
        lambda: pa.array([{"x": i % 2} for i in range(n)]),
        lambda: pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int64())),
        lambda: pa.nulls(n),
        lambda: pa.array([("a", "b")[i % 2] for i in range(n)]).dictionary_encode(),
        lambda: pa.array([i % 2 for i in range(n)]).dictionary_encode(),
        lambda: pa.array([None if i % 3 else "x" for i in range(n)], pa.large_string()),
        lambda: pa.array([2**62 + i % 2 for i in range(n)]),
        lambda: pa.array([float("nan") if i % 2 else 1e300 for i in range(n)]),
        lambda: pa.array(names),
    ]
    columns = ["path", "label"] if rng.random() < 0.6 else ["a", "b", "label"]
    columns += [
        rng.choice(["split", "id", "cue", "label", "text", "", text(rng, 9)])
        for _ in range(rng.choice([0, 1, 2]))
    ]
    made = []
    for column in columns:
        good = (
            pa.array(names) if column == "path" else kinds[0]() if column == "label" else kinds[3]()
        )
        made.append(good if rng.random() < 0.6 else rng.choice(kinds)())
    safe = [c.encode("utf-8", "replace").decode() for c in columns]
    table = pa.Table.from_arrays(made, names=safe)
    if rng.random() < 0.1:
        table = table.replace_schema_metadata(
            {b"pandas": rng.choice([b"{}", b"[]", b"\xff", b'{"index_columns": ["q"]}'])}
        )
    file = place / "t.parquet"
    pq.write_table(table, file)
    return file


def folder(rng: random.Random, place: Path) -> Path:
    """Class folders with names nobody gives and pictures nobody takes."""
    root = place / rng.choice(
        ["pets", "a b", "é", "-d", "d\n", "[red]", "x?y=z", "a:b", "~", "50%"]
    )
    classes = ["cat", "dog", *(_name(rng) for _ in range(rng.choice([0, 0, 1, 2])))]
    inside = rng.choice(
        [[""], [""], [""], ["train"], ["train", "val", "test"], ["train", "Test"], ["test"]]
    )
    for split in inside:
        for c, name in enumerate(classes):
            home = root / split / name
            try:
                home.mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            for i in range(rng.choice([0, 1, 2, 6, 6, 6])):
                miniatures.save(home / f"{i}.png", seed=10 * c + i, tint=c)
            for _ in range(rng.choice([0, 0, 0, 1, 2])):
                _odd_file(home, rng)
    root.mkdir(exist_ok=True)
    if rng.random() < 0.2:
        (root / "cat").mkdir(exist_ok=True)
        (root / "cat" / "again").symlink_to(root, target_is_directory=True)
    if rng.random() < 0.1:
        (root / "ring").symlink_to(root / "ring")
    return root


def _name(rng: random.Random) -> str:
    found = "".join(c for c in text(rng, 60) if c not in "/\0") or "x"
    return os.fsdecode(
        os.fsencode(found.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape"))[:200]
    )


def _odd_file(home: Path, rng: random.Random) -> None:
    from PIL import Image

    file = (
        home / f"{_name(rng)[:40]}.{rng.choice(['png', 'jpg', 'gif', 'tif', 'bmp', 'webp', 'PNG'])}"
    )
    size = rng.choice([(1, 1), (1, 4000), (24, 20), (3, 3)])
    mode = rng.choice(["RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "YCbCr", "I;16", "F", "I"])

    def saved() -> None:
        out = io.BytesIO()
        kind = rng.choice(["PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM"])
        try:
            Image.new(mode, size).save(out, kind)
        except (OSError, ValueError, KeyError):
            Image.new("RGB", size).save(out, kind)
        data = bytearray(out.getvalue())
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        elif rng.random() < 0.3:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)

    ways: list[Callable[[], object]] = [
        saved,
        saved,
        saved,
        file.touch,
        lambda: file.write_bytes(rng.randbytes(300)),
        file.mkdir,
        lambda: os.mkfifo(file),
        lambda: file.symlink_to("/dev/zero"),
        lambda: file.symlink_to(file),
        lambda: file.symlink_to("/dev/full"),
        lambda: file.symlink_to("/proc/self/mem"),
    ]
    with contextlib.suppress(OSError):  # a name that this file system does not take
        rng.choice(ways)()
