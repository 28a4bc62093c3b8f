"""Faults of tables and arrays: refused in one line that names the file, before any work."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import miniatures
from faults.case import QUICK, Place, fault
from sebra.loading.decode import load_images
from sebra.samples.open import open_samples

GROUP = "tables and arrays"


def refused(name: str, words: str, make: Callable[[Place], Path]) -> None:
    @fault(GROUP, name, f"refused: {words}")
    def check(place: Place) -> str:
        data = make(place)
        line = place.refused(words, "rank", data, "--device", "cpu", "--out", place / "run")
        assert not (place / "run").exists()
        return line


class Bomb:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.open, (str(self.file), os.O_CREAT)


def pickled(place: Place) -> Path:
    labels = np.array([Bomb(place / "owned")] * 60, dtype=object)
    file = miniatures.npz(place / "x.npz", y=labels)
    with zipfile.ZipFile(file) as archive:
        assert b"owned" in archive.read("y.npy")
    return file


@fault(GROUP, "npz with pickled objects", "refused, nothing is unpickled")
def pickled_objects(place: Place) -> str:
    line = place.refused("array 'y' cannot be read", "rank", pickled(place), "--device", "cpu")
    assert not (place / "owned").exists()
    assert pickle.loads(pickle.dumps(Bomb(place / "owned"))) > 0  # noqa: S301 the bomb works
    assert (place / "owned").exists()
    return line


def npy(shape: str, kind: str = "<f4") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def with_entry(place: Place, name: str, data: bytes, size: int | None = None) -> Path:
    file = miniatures.npz(place / "x.npz")
    kept = zipfile.ZipFile(file)
    entries = {n: kept.read(n) for n in kept.namelist()} | {name: data}
    kept.close()
    with zipfile.ZipFile(file, "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)
            if size is not None and entry == name:
                archive.getinfo(entry).file_size = size
    return file


def cut(file: Path, share: float = 0.6) -> Path:
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    return file


def text(place: Place, name: str, content: bytes) -> Path:
    (place / name).write_bytes(content)
    return place / name


def with_nan(place: Place) -> Path:
    x = miniatures.features()["X"]
    x[41, 2] = np.nan
    return miniatures.npz(place / "x.npz", X=x)


def shuffled_bytes(place: Place) -> Path:
    file = miniatures.manifest(place.path, kind="parquet")
    data = bytearray(file.read_bytes())
    data[20:-40] = bytes(reversed(data[20:-40]))
    file.write_bytes(bytes(data))
    return file


def no_array(place: Place) -> Path:
    file = miniatures.npz(place / "x.npz")
    with zipfile.ZipFile(file) as kept:
        entries = {n: kept.read(n) for n in kept.namelist() if n != "y.npy"}
    with zipfile.ZipFile(file, "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)
        archive.writestr("y", b"not an array")
    return file


refused(
    "npz that asks for terabytes",
    "array 'X' cannot be read",
    lambda p: with_entry(p, "X.npy", npy("(10000000000000, 8)")),
)
refused(
    "npz that claims to unpack to terabytes",
    "more than the memory of this machine",
    lambda p: with_entry(p, "more.npy", npy("(1,)") + b"\0" * 4, size=2**45),
)
refused("npz with a file that is no array", "'y' is not", no_array)
refused("truncated npz", "not a readable .npz", lambda p: cut(miniatures.npz(p / "x.npz")))
refused(
    "truncated X.npy",
    "X.npy: not a readable .npy file",
    lambda p: cut(miniatures.array_folder(p / "a") / "X.npy").parent,
)
refused("NaN among features", "NaN or infinity in row 41", with_nan)
refused(
    "labels of another length",
    "y has shape (9,)",
    lambda p: miniatures.npz(p / "x.npz", y=np.arange(9) % 2),
)
refused(
    "complex numbers as features",
    "X must hold numbers",
    lambda p: miniatures.npz(p / "x.npz", X=miniatures.features()["X"].astype(np.complex64)),
)
refused(
    "table that is not UTF-8", "is not UTF-8", lambda p: text(p, "t.csv", b"path,label\n\xff\xfe,a")
)
refused("empty table", "not a readable table", lambda p: text(p, "t.csv", b""))
refused("table without rows", "has no rows", lambda p: text(p, "t.csv", b"path,label\n"))
refused(
    "rows of unequal length",
    "not a readable table",
    lambda p: text(p, "t.csv", b"path,label\na,b\nc,d,e,f\n"),
)
refused(
    "the same id twice",
    "id '1.png' occurs twice",
    lambda p: text(p, "t.csv", b"path,label\n1.png,a\n2.png,a\n3.png,b\n1.png,b\n"),
)
refused("damaged parquet", "table", shuffled_bytes)
refused("text named .parquet", "not a readable table", lambda p: text(p, "t.parquet", b"PAR1"))
refused("one class", "needs at least two classes", lambda p: miniatures.folder(p / "d", ("cat",)))


@fault(GROUP, "table that names a missing file", "set aside: file not found")
def missing_file(place: Place) -> str:
    file = miniatures.manifest(place.path)
    (place / "images" / "0.png").unlink()
    kept, _ = load_images(open_samples(str(file)), 32)
    assert [(f.id, f.reason) for f in kept.faults] == [("images/0.png", "file not found")]
    return "set aside: file not found"


@fault(GROUP, "the same features in two splits", "reported as leakage")
def same_features(place: Place) -> str:
    from sebra_tools.data_check import describe

    x = miniatures.features()["X"]
    x[59] = x[0]
    found = describe(open_samples(str(miniatures.npz(place / "x.npz", X=x))), deep=True)
    assert found["leakage"] == {"count": 1, "examples": [["0", "59"]]}
    return found["notes"][-1]


@fault(GROUP, "test group without a single sample", "no figure for it, not zero")
def empty_group(place: Place) -> str:
    import json

    arrays = miniatures.features(n=240)
    arrays["cue"] = np.where(arrays["split"] == 2, arrays["y"], arrays["cue"])
    file = miniatures.npz(place / "x.npz", **arrays)
    done = place.run(
        "debias", file, "--device", "cpu", "--method", "erm", "--set", "epochs=2",
        "--out", place / "run", "--json",
    )  # fmt: skip
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)["evaluation"]
    assert [g["name"] for g in found["groups"]] == ["0, cue=0", "1, cue=1"]
    assert found["worst_group_range"][0] == 0  # the groups that are not there could be the worst
    assert "worst_group" not in found
    assert found["gaps"] == {}
    assert "average_gap" not in found
    return "no figure for it, not zero"


@fault(GROUP, "wrong data with --out", "refused, no folder is left")
def no_empty_folder(place: Place) -> str:
    place.refused("no such file", "rank", place / "no", *QUICK, "--out", place / "a" / "run")
    assert not (place / "a").exists()
    return "refused, no folder is left"
