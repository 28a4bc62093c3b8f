"""Two processes give what one gives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sebra.engine import distributed
from sebra.errors import UsageError

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def features(tmp_path):
    """301 samples of two classes (an odd number: shares are unequal), a cue that most follow."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=301)
    cue = np.where(rng.random(301) < 0.85, y, 1 - y)
    noise = rng.normal(size=(301, 6))
    values = noise + 2.0 * cue[:, None] * (np.arange(6) < 3) + 0.7 * y[:, None]
    folder = tmp_path / "features"
    folder.mkdir()
    np.save(folder / "X.npy", values.astype(np.float32))
    np.save(folder / "y.npy", y)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launched(*arguments: object, launcher: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    own = {"PYTHONPATH": str(REPO / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *launcher, *map(str, arguments)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def accelerate() -> tuple[str, ...]:
    options = ("--cpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
               "--dynamo_backend", "no", "--main_process_port", str(free_port()))  # fmt: skip
    return ("-m", "accelerate.commands.launch", *options, "-m", "sebra")


def torchrun() -> tuple[str, ...]:
    options = ("--nproc_per_node", "2", "--master_port", str(free_port()))
    return ("-m", "torch.distributed.run", *options, "-m", "sebra")


QUICK = ("--device", "cpu", "--set", "epochs=4", "--set", "batch=33")


def test_two_processes_under_accelerate_give_the_same_buckets_as_one(features, tmp_path, call_cli):
    alone = call_cli("rank", features, *QUICK, "--out", tmp_path / "one")
    assert alone.status == 0, alone.stderr
    done = launched(
        "rank", features, *QUICK, "--json", "--out", tmp_path / "two", launcher=accelerate()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"ranking"') == 1  # one process prints
    one, two = (pd.read_parquet(tmp_path / k / "ranking.parquet") for k in ("one", "two"))
    assert one["bucket"].nunique() > 2
    assert (one["bucket"] == two["bucket"]).all()
    # Scores differ in the last digits, so neighbours may change places.
    assert (one["rank"] - two["rank"]).abs().max() <= 2


def test_two_processes_train_a_model_together(features, tmp_path, call_cli):
    arguments = ("debias", features, "--method", "erm", *QUICK)
    alone = call_cli(*arguments, "--out", tmp_path / "one")
    assert alone.status == 0, alone.stderr
    done = launched(*arguments, "--out", tmp_path / "two", launcher=torchrun())
    assert done.returncode == 0, done.stderr
    from safetensors.torch import load_file

    one, two = (load_file(tmp_path / k / "model.safetensors") for k in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3)


@pytest.fixture
def two(monkeypatch):
    """As the second of two processes sees it."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")


def test_shares_of_a_batch_and_their_weights_make_up_the_whole(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    batch = torch.arange(11)
    losses = batch.double() ** 2
    parts, means = [], []
    for number in range(3):
        monkeypatch.setenv("RANK", str(number))
        mine = distributed.share(batch)
        parts += mine.tolist()
        means.append(losses[mine].mean() * distributed.share_weight(11))
    assert parts == batch.tolist()
    assert float(sum(means) / 3) == pytest.approx(float(losses.mean()))


@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_parts_of_the_samples_have_one_length_and_join_in_order(monkeypatch, count):
    monkeypatch.setenv("WORLD_SIZE", "4")
    index = torch.arange(100, 100 + count)
    parts = []
    for number in range(4):
        monkeypatch.setenv("RANK", str(number))
        parts.append(distributed.part_of(index))
    assert len({len(part) for part in parts}) == 1
    assert torch.cat(parts)[:count].tolist() == index.tolist()


def test_a_batch_smaller_than_the_processes_is_refused(two):
    with pytest.raises(UsageError, match="2 processes share batches of 1"):
        distributed.share(torch.zeros(1))


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE=abc: expected a whole number"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE=-2: expected a whole number"),
        ({"WORLD_SIZE": "2", "RANK": "7"}, "RANK=7: expected a whole number from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE=2 without MASTER_ADDR, MASTER_PORT"),
    ],
)
def test_an_environment_that_no_launcher_sets_is_refused(call_cli, monkeypatch, environment, words):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = call_cli("rank", "demo?n=100", "--device", "cpu")
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.startswith(f"sebra: {words}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("debias", "demo", "--method", "groupdro"), "--method groupdro: works in one process"),
        (("rank", "demo", "--resume"), "--resume: works in one process"),
        (("bench", "demo"), "sebra bench: works in one process"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(call_cli, monkeypatch, arguments, words):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    done = call_cli(*arguments)
    assert done.status == 2
    assert words in done.stderr


def test_only_the_main_process_says_what_is_wrong(call_cli, two):
    done = call_cli("bench", "demo")
    assert done.status == 2
    assert done.stderr == ""


def test_files_of_other_processes_go(two, tmp_path):
    from sebra.runs.folder import RunFolder

    folder = RunFolder.create(str(tmp_path / "run"), "rank")
    assert not (tmp_path / "run").exists()
    assert folder.path.is_dir()
