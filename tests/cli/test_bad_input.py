"""Bad input costs one clear line on stderr and status 2, before any training."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import miniatures

QUICK = ("--device", "cpu", "--set", "epochs=1")
Arguments = tuple[object, ...]
Case = tuple[Callable[[Path], Arguments], str]


def rank(data: object, *more: object) -> Arguments:
    return "rank", data, "--device", "cpu", "--out", "run", *more


def debias(data: object, *more: object) -> Arguments:
    return "debias", data, "--device", "cpu", "--out", "run", *more


def npz(here: Path, **changes: np.ndarray) -> Path:
    return miniatures.npz(here / "two.npz", **changes)


def pets(here: Path) -> Path:
    return miniatures.folder(here / "pets")


def table(here: Path, header: str, *rows: str) -> Path:
    """A manifest of four images with these rows."""
    for i in range(4):
        miniatures.save(here / f"{i}.png", seed=i, tint=i % 2)
    file = here / "table.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


def spoilt(row: int, value: float) -> np.ndarray:
    x = miniatures.features()["X"].copy()
    x[row, 2] = value
    return x


def parquet(file: Path, /, **columns: list) -> Path:
    import pandas as pd

    pd.DataFrame(columns).to_parquet(file)
    return file


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def empty(here: Path) -> Path:
    (here / "empty").mkdir()
    return here / "empty"


def lonely(here: Path) -> Path:
    miniatures.save(pets(here) / "emu" / "0.png", seed=9)
    return here / "pets"


def unreadable(here: Path) -> Path:
    """Eight of twelve images are none."""
    for i in range(4):
        for name in ("cat", "dog"):
            written(pets_folder(here) / name / f"{i:03d}.png", "no picture")
    return here / "pets"


def pets_folder(here: Path) -> Path:
    return here / "pets" if (here / "pets").is_dir() else pets(here)


def split_pets(here: Path, broken: str) -> Path:
    """Splits with class folders; most of one split is no picture."""
    root = miniatures.split_folder(here / "pets")
    for file in sorted((root / broken).rglob("*.jpg"))[:-2]:
        file.write_bytes(b"no picture")
    return root


def weights(here: Path) -> Path:
    """A safetensors file of no known network."""
    from safetensors.numpy import save_file

    save_file({"layer.weight": np.zeros((2, 2), np.float32)}, here / "other.safetensors")
    return here / "other.safetensors"


def ranking_of(here: Path, ids: list[str], **more: object) -> Path:
    import pandas as pd

    columns = {"id": ids, "label": "0", "rank": range(len(ids)), "bucket": 0, "spuriosity": 0.5}
    columns |= more
    pd.DataFrame(columns).to_parquet(here / "ranking-of-others.parquet")
    return here / "ranking-of-others.parquet"


def bare_run(here: Path) -> Path:
    """A run folder with a configuration and nothing else."""
    return written(here / "bare" / "config.toml", 'command = "rank"\ndata = "x.npz"\n').parent


def crowded(here: Path) -> Path:
    return written(here / "photos" / "letter.txt", "dear all").parent


LABELLED = ("0.png,a", "1.png,b", "2.png,a", "3.png,b")
MARKS = "id,mark,label\n"

DATA: dict[str, Case] = {
    "missing path": (lambda p: rank("nowhere/photos"), "nowhere/photos: no such file or folder"),
    "no form of data": (lambda p: rank(written(p / "a.txt", "x")), "a.txt: not a form of DATA"),
    "empty folder": (lambda p: rank(empty(p)), "empty: no images found"),
    "images without class folders": (
        lambda p: rank(miniatures.save(p / "all" / "0.png", 1).parent),
        "expected one folder per class",
    ),
    "no train folder": (
        lambda p: rank(miniatures.folder(p / "pets" / "test").parent),
        "has test but no train folder",
    ),
    "one class only": (
        lambda p: rank(miniatures.folder(p / "pets", classes=("cat",))),
        "needs at least two classes, found cat",
    ),
    "class with one sample": (lambda p: rank(lonely(p)), "class 'emu' has 1 training sample"),
    "no label column": (
        lambda p: rank(table(p, "path,kind", *LABELLED)),
        "no column 'label' (columns: path, kind)",
    ),
    "label missing in a row": (
        lambda p: rank(table(p, "path,label", *LABELLED[:3], "3.png,")),
        "label",
    ),
    "neither path nor text": (
        lambda p: rank(table(p, "file,label", *LABELLED)),
        "no column 'path' or 'text'",
    ),
    "duplicate ids": (
        lambda p: rank(table(p, "path,label", *LABELLED, "0.png,b")),
        "id '0.png' occurs twice",
    ),
    "unknown split": (
        lambda p: rank(table(p, "path,label,split", *(f"{r},holiday" for r in LABELLED))),
        "holiday",
    ),
    "not a table": (lambda p: rank(written(p / "x.parquet", "PAR0")), "not a readable table"),
    "NaN features": (lambda p: rank(npz(p, X=spoilt(7, np.nan))), "NaN or infinity in row 7"),
    "infinite features": (lambda p: rank(npz(p, X=spoilt(3, np.inf))), "infinity in row 3"),
    "X and y differ in length": (lambda p: rank(npz(p, y=np.arange(9) % 2)), "y has shape (9,)"),
    "pickled objects": (
        lambda p: rank(npz(p, y=np.array([{"a": 1}] * 60, dtype=object))),
        "array 'y' cannot be read",
    ),
    "npz that is none": (lambda p: rank(written(p / "x.npz", "zip")), "not a readable .npz file"),
    "unknown layout": (lambda p: rank(f"mars:{p}"), "unknown layout 'mars'"),
    "data from a distance": (lambda p: rank("https://host/x.csv"), "hf:ORG/NAME"),
    "data of a bucket": (lambda p: rank("s3://bucket/x"), "hf:ORG/NAME"),
    "hub name that leads elsewhere": (lambda p: rank("hf:../.."), "expected hf:ORG/NAME"),
    "too large a built-in set": (lambda p: rank("demo?n=100000000"), "n must be 100 to 100000"),
    "NUL in a path": (
        lambda p: rank(written(p / "x.csv", "path,label\na\0b,x\nc,y\n")),
        "x.csv",
    ),
    "lists as labels": (
        lambda p: rank(parquet(p / "x.parquet", path=["a", "b"], label=[["x"], ["y"]])),
        "label holds a ",
    ),
    "unknown layout option": (lambda p: rank("demo?colour=red"), "colour"),
    "layout without its folder": (lambda p: rank("bar"), "bar:PATH"),
    "layout over other files": (lambda p: rank(f"urbancars:{pets(p)}"), "pets"),
    "most images unreadable": (lambda p: rank(unreadable(p)), "8 of 12 images cannot be read"),
    "most test images unreadable": (
        lambda p: debias(split_pets(p, "test"), "--method", "erm"),
        "10 of 12 images cannot be read",
    ),
}
OPTIONS: dict[str, Case] = {
    "unknown command": (lambda p: ("rnak", npz(p)), "rnak"),
    "unknown option": (lambda p: rank(npz(p), "--colour", "red"), "--colour"),
    "no DATA": (lambda p: ("rank",), "DATA"),
    "seed that is no number": (lambda p: rank(npz(p), "--seed", "x"), "--seed"),
    "negative seed": (lambda p: rank(npz(p), "--seed", -1), "--seed: -1 is not a number from 0"),
    "seed beyond all": (lambda p: rank(npz(p), "--seed", 2**63), "--seed: 9223372036854775808"),
    "image of one pixel": (lambda p: rank(pets(p), "--image-size", 1), "--image-size: 1 is not"),
    "negative decay": (lambda p: rank(npz(p), "--set", "weight_decay=-1"), "weight_decay=-1"),
    "rate beyond all": (lambda p: rank(npz(p), "--set", "lr=1e38"), "--set lr=1e+38: must be"),
    "momentum above 1": (lambda p: rank(npz(p), "--set", "momentum=1.5"), "momentum=1.5: must be"),
    "beta beyond all": (lambda p: rank(npz(p), "--set", "beta=1e308"), "--set beta=1e+308"),
    "unknown attribute": (
        lambda p: rank(npz(p), "--attributes", "cue,hat"),
        "--attributes: no column 'hat'",
    ),
    "unknown ranker": (lambda p: rank(npz(p), "--method", "magic"), "no ranker 'magic'"),
    "unknown method": (lambda p: debias(npz(p), "--method", "magic"), "method 'magic'"),
    "unknown ranker to debias": (
        lambda p: debias(npz(p), "--rank-method", "magic"),
        "--rank-method: no ranker 'magic'",
    ),
    "unknown setting": (lambda p: rank(npz(p), "--set", "colour=1"), "--set colour"),
    "setting without value": (lambda p: rank(npz(p), "--set", "beta"), "--set beta: write key"),
    "bad setting": (lambda p: rank(npz(p), "--set", "epochs=many"), "'many' is not a valid epochs"),
    "p_critical out of range": (lambda p: rank(npz(p), "--set", "p_critical=2"), "p_critical=2"),
    "lam without a threshold": (lambda p: rank(npz(p), "--set", "lam=3"), "lambda = 3"),
    "debias setting out of range": (lambda p: debias(npz(p), "--set", "lr=-1"), "--set lr=-1"),
    "unknown preset": (lambda p: rank(npz(p), "--preset", "paper/mars"), "no preset 'paper/mars'"),
    "unknown preset to debias": (
        lambda p: debias(npz(p), "--preset", "paper/mars"),
        "no preset 'paper/mars'",
    ),
    "neurons for another ranker": (
        lambda p: rank(npz(p), "--neurons", "auto"),
        "--neurons: belongs to --method neurons",
    ),
    "neurons file missing": (
        lambda p: rank(npz(p), "--method", "neurons", "--neurons", "marks.json"),
        "--neurons: cannot read marks.json",
    ),
    "a ranking and a ranker": (
        lambda p: debias(npz(p), "--ranking", "r.parquet", "--rank-method", "erm"),
        "--ranking, --rank-method",
    ),
    "unknown mode": (lambda p: rank(npz(p), "--mode", "dream"), "--mode: 'dream'"),
    "finetune on features": (lambda p: rank(npz(p), "--mode", "finetune"), "--mode finetune"),
    "backbone on features": (lambda p: rank(npz(p), "--backbone", "resnet18"), "--backbone"),
    "weights on features": (lambda p: rank(npz(p), "--weights", weights(p)), "--weights"),
    "unknown device": (lambda p: ("rank", npz(p), "--device", "tpu"), "--device: 'tpu'"),
    "features without weights": (
        lambda p: rank(pets(p), "--mode", "features", "--backbone", "resnet18"),
        "--mode features: needs pretrained weights",
    ),
    "hub out of reach": (
        lambda p: rank(pets(p), "--backbone", "resnet18", "--weights", "hub"),
        "--weights hub",
    ),
    "weights missing": (
        lambda p: rank(pets(p), "--backbone", "resnet18", "--weights", "no.safetensors"),
        "--weights: no file no.safetensors",
    ),
    "weights of another network": (
        lambda p: rank(pets(p), "--backbone", "resnet18", "--weights", weights(p)),
        "does not fit resnet18",
    ),
    "weights that are none": (
        lambda p: rank(pets(p), "--weights", written(p / "w.safetensors", "weights")),
        "is not a safetensors file",
    ),
    "unknown backbone": (
        lambda p: rank(pets(p), "--backbone", "resnet17½"),
        "timm has no model 'resnet17½'",
    ),
    "image size of nothing": (lambda p: rank(pets(p), "--image-size", 0), "--image-size"),
    "exclude file missing": (
        lambda p: rank(npz(p), "--exclude", "marks.csv"),
        "--exclude: cannot read marks.csv",
    ),
    "exclude of unknown ids": (
        lambda p: rank(npz(p), "--exclude", written(p / "m.csv", f"{MARKS}x9,drop,\n")),
        "no sample 'x9'",
    ),
    "exclude leaves one class": (
        lambda p: rank(
            npz(p),
            "--exclude",
            written(p / "m.csv", MARKS + "".join(f"{i},drop,\n" for i in range(0, 60, 2))),
        ),
        "class '0' has 0 training samples",
    ),
    "groupdro without attributes": (
        lambda p: debias(pets(p), "--method", "groupdro"),
        "--method groupdro: needs attribute columns",
    ),
    "dfr without a val split": (
        lambda p: debias(pets(p), "--method", "dfr"),
        "--method dfr: needs a val split",
    ),
    "ranking missing": (lambda p: debias(npz(p), "--ranking", "old"), "old: no ranking.parquet"),
    "ranking of other data": (
        lambda p: debias(pets(p), "--ranking", ranking_of(p, ["x1", "x2"])),
        "it was made from other data",
    ),
    "ranking with a chance above 1": (
        lambda p: debias(npz(p), "--ranking", ranking_of(p, ["x1", "x2"], p=[0.5, 1.5])),
        "column p must hold numbers 0 to 1",
    ),
    "ranking with chances that are no numbers": (
        lambda p: debias(npz(p), "--ranking", ranking_of(p, ["x1", "x2"], noise=["low", None])),
        "column noise must hold numbers 0 to 1",
    ),
}
RUNS: dict[str, Case] = {
    "out with too long a name": (
        lambda p: ("rank", npz(p), *QUICK, "--out", p / ("a" * 5000)),
        "File name too long",
    ),
    "out below a file": (
        lambda p: ("rank", npz(p), *QUICK, "--out", npz(p) / "run"),
        "--out: cannot write to",
    ),
    "out with other files": (
        lambda p: ("rank", npz(p), *QUICK, "--out", crowded(p)),
        "photos holds other files",
    ),
    "evaluate what is no run": (
        lambda p: ("evaluate", crowded(p), npz(p)),
        "photos: not a run folder",
    ),
    "evaluate an empty run": (
        lambda p: ("evaluate", bare_run(p), npz(p)),
        "holds neither a model nor a ranking",
    ),
    "evaluate to no file": (
        lambda p: ("evaluate", bare_run(p), npz(p), "--out", p),
        "--out:",
    ),
    "unknown format": (
        lambda p: ("evaluate", bare_run(p), npz(p), "--format", "pdf"),
        "--format: 'pdf'",
    ),
    "report without a ranking": (lambda p: ("report", bare_run(p)), "no ranking.parquet in it"),
    "report of no run": (lambda p: ("report", "nowhere"), "nowhere: not a run folder"),
    "predict without a model": (
        lambda p: ("predict", bare_run(p), npz(p), "--device", "cpu"),
        "no model.safetensors",
    ),
    "check of nothing": (lambda p: ("data", "check", "nowhere"), "nowhere: no such file"),
    "audit of nothing": (lambda p: ("audit", "nowhere", "--out", "run"), "nowhere: no such file"),
    "audit by an unknown ranker": (
        lambda p: ("audit", npz(p), "--method", "magic", "--out", "run"),
        "no ranker 'magic'",
    ),
}
CASES = {**DATA, **OPTIONS, **RUNS}


def refused(done, words: str, here: Path) -> None:
    """One line that names what is wrong, and nothing was ranked or trained."""
    assert done.status == 2, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("sebra: ")
    assert words in lines[0]
    assert "Traceback" not in done.stderr
    assert list(here.rglob("ranking.parquet")) == []
    assert list(here.rglob("model.safetensors")) == []
    assert list(here.rglob("state.safetensors")) == []


@pytest.mark.parametrize("name", CASES)
def test_bad_input_costs_one_line_and_status_2(call_cli, tmp_path, name):
    make, words = CASES[name]
    refused(call_cli(*make(tmp_path)), words, tmp_path)


def test_the_same_holds_of_a_process(cli, tmp_path):
    make, words = CASES["most images unreadable"]  # found by threads, once work has begun
    refused(cli(*make(tmp_path)), words, tmp_path)


def test_with_json_nothing_is_on_stdout_either(call_cli, tmp_path):
    refused(call_cli(*rank("nowhere"), "--json"), "nowhere", tmp_path)


def test_cuda_without_a_gpu(call_cli, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = call_cli("rank", npz(tmp_path), "--device", "cuda", "--out", "run")
    refused(done, "--device cuda: no CUDA GPU", tmp_path)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    folder.mkdir()
    folder.chmod(0o500)
    try:
        yield
    finally:
        folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_out_without_write_permission(call_cli, tmp_path):
    data = npz(tmp_path)
    with read_only(tmp_path / "locked"):
        done = call_cli("rank", data, *QUICK, "--out", tmp_path / "locked" / "run")
        refused(done, "--out: cannot write to", tmp_path)


def test_a_ranking_of_other_data_is_not_measured(call_cli, tmp_path):
    run = bare_run(tmp_path)
    ranking_of(tmp_path, ["x1", "x2"]).rename(run / "ranking.parquet")
    done = call_cli("evaluate", run, npz(tmp_path), "--device", "cpu")
    assert done.status == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "is a ranking of other data than" in done.stderr


def test_a_model_run_is_not_measured_on_other_classes(call_cli, tmp_path):
    asked = ("debias", npz(tmp_path), *QUICK, "--method", "erm", "--out", "run", "--json")
    assert json.loads(call_cli(*asked).stdout)["method"] == "erm"
    other = miniatures.npz(tmp_path / "other.npz", y=np.array(["a", "b"] * 30))
    done = call_cli("evaluate", "run", other, "--device", "cpu")
    assert (done.status, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "its classes (a, b) are not the model's (0, 1)" in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 TiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    ],
)
def test_memory_that_runs_out_costs_one_line(error, call_cli, monkeypatch, tmp_path):
    from sebra.workflows import rank

    def fails(*args, **more):
        raise error

    monkeypatch.setattr(rank, "rank", fails)
    data = miniatures.npz(tmp_path / "x.npz")
    done = call_cli("rank", data, "--out", tmp_path / "run")
    assert done.status == 2
    assert done.stderr.startswith("sebra: not enough memory for this data with these options")
    assert len(done.stderr.splitlines()) == 1
