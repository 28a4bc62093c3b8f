"""Files made to do harm are refused, or harmless; each test fails without its defence."""

from __future__ import annotations

import ast
import json
import os
import pickle
import socket
import struct
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import miniatures
from sebra.engine import packing
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.samples.open import open_samples


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.open, (str(self.file), os.O_CREAT)


def test_a_pickle_in_the_place_of_a_checkpoint_is_not_opened(tmp_path):
    (tmp_path / "state.safetensors").write_bytes(pickle.dumps(Bomb(tmp_path / "owned")))
    with pytest.raises(UsageError, match="not a checkpoint"):
        Session(tmp_path, resume=True)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_a_torch_file_in_the_place_of_weights_is_not_opened(tmp_path, name):
    from sebra.engine.weights import read_weights

    torch.save({"a": Bomb(tmp_path / "owned")}, tmp_path / name)
    with pytest.raises(UsageError, match="not a safetensors file"):
        read_weights(str(tmp_path / name))
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("form", ["npz", "npy"])
def test_pickled_labels_are_not_opened(tmp_path, form):
    labels = np.array([Bomb(tmp_path / "owned")] * 60, dtype=object)
    if form == "npz":
        data = miniatures.npz(tmp_path / "x.npz", y=labels)
    else:
        data = miniatures.array_folder(tmp_path / "a", y=labels)
    with pytest.raises(UsageError, match=r"Object arrays|Python objects"):
        open_samples(str(data))
    assert not (tmp_path / "owned").exists()


def test_a_checkpoint_nested_without_end_is_refused(tmp_path):
    from safetensors.torch import save_file

    deep = '{"__items__": [["a", ' * 5000 + "1" + "]]}" * 5000
    meta = {"header": "{}", "state": deep}
    save_file({}, str(tmp_path / "state.safetensors"), metadata=meta)
    with pytest.raises(UsageError, match="not a checkpoint"):
        Session(tmp_path, resume=True)


@pytest.mark.parametrize("header", ["[]", "7", '"text"', "null"])
def test_a_checkpoint_whose_header_is_no_table_is_refused(tmp_path, header):
    from safetensors.torch import save_file

    meta = {"header": header, "state": '{"__items__": []}'}
    save_file({}, str(tmp_path / "state.safetensors"), metadata=meta)
    with pytest.raises(UsageError, match="not a checkpoint"):
        Session(tmp_path, resume=True)


def test_results_that_are_no_tensors_are_refused(tmp_path):
    packing.save(tmp_path / "state.safetensors", {"done": {"x": {"y": "z"}}, "current": None}, {})
    with pytest.raises(UsageError, match="not a checkpoint"):
        Session(tmp_path, resume=True)


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (2**63, b"{}"),
        (2**40, b"{}"),
        (None, b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}'),
        (None, b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,999999999999]}}'),
        (None, b'{"a":{"dtype":"EVIL","shape":[1],"data_offsets":[0,4]}}'),
        (None, b"[" * 100_000),
    ],
)
def test_a_hostile_safetensors_header_is_refused_by_every_reader(tmp_path, size, header):
    from sebra.engine.weights import read_weights

    file = tmp_path / "state.safetensors"
    length = len(header) if size is None else size
    file.write_bytes(struct.pack("<Q", length) + header + b"\0" * 4)
    with pytest.raises(UsageError, match="not a checkpoint"):
        Session(tmp_path, resume=True)
    with pytest.raises(UsageError, match="not a safetensors file"):
        read_weights(str(file))


def test_an_archive_that_unpacks_to_more_than_the_memory_is_refused_unread(tmp_path, monkeypatch):
    file = miniatures.npz(tmp_path / "x.npz")
    with zipfile.ZipFile(file) as archive:
        size = sum(entry.file_size for entry in archive.infolist())

    class Machine:
        total = size - 1

    monkeypatch.setattr("psutil.virtual_memory", lambda: Machine)
    with pytest.raises(UsageError, match="more than the memory"):
        open_samples(str(file))


def test_postscript_is_not_handed_to_its_interpreter(tmp_path):
    from PIL import Image

    from sebra.samples.picture import decode_image

    file = tmp_path / "x.png"
    Image.new("RGB", (8, 8)).save(file, "EPS")
    with Image.open(file) as image:
        assert image.format == "EPS"  # PIL itself would have taken it
    with pytest.raises(ValueError, match="not a readable image"):
        decode_image(file, 8)


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.attributes = 0, set()

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.attributes |= {name for name, _ in attrs}


HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'


def test_a_manifest_of_hostile_names_gives_a_harmless_report(tmp_path, call_cli):
    rows = []
    for i in range(24):
        miniatures.save(tmp_path / f"{i}.png", seed=i, tint=i % 2)
        label = (HOSTILE, "=cmd|' /C calc'!A0")[i % 2]
        rows.append({"path": f"{i}.png", "id": f"{HOSTILE}{i}", "label": label, HOSTILE: HOSTILE})
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    done = call_cli(
        "audit", tmp_path / "t.csv", "--device", "cpu", "--backbone", "random", "--method", "sebra",
        "--set", "epochs=2", "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.status == 0, done.stderr
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" in html
    seen = Seen()
    seen.feed(html)
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert seen.scripts == 5  # four of data, one of ours: see the report's own tests


def test_nothing_of_ours_unpickles_evaluates_or_calls_a_shell(repo_root):
    forbidden = {"eval", "exec", "compile", "__import__", "system", "popen"}
    for file in (repo_root / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {a.name for a in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "marshal", "shelve", "dill", "joblib"}, file
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", None)
                assert name not in forbidden, f"{file}:{node.lineno}"
                words = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert words.get("shell", "False") == "False", f"{file}:{node.lineno}"
                assert words.get("allow_pickle", "False") == "False", f"{file}:{node.lineno}"
                if ast.unparse(node.func) == "torch.load":
                    assert words.get("weights_only") == "True", f"{file}:{node.lineno}"


def test_offline_opens_no_connection(tmp_path, call_cli, monkeypatch):
    def refuse(*_):
        raise AssertionError("reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    data = miniatures.folder(tmp_path / "pets")
    done = call_cli(
        "rank", data, "--device", "cpu", "--backbone", "resnet18", "--image-size", 32,
        "--set", "epochs=1", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.status == 0, done.stderr
    assert "hub out of reach" in " ".join(json.loads(done.stdout)["notes"])
