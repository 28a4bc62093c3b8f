"""Faults of long runs: stopped, starved of disk, diverged, or given another run's checkpoint."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pandas as pd
import pytest
import torch
from pyarrow import parquet

import miniatures
from conftest import CliResult
from faults.case import QUICK, Place, fault, small_disk, stopped_by, until
from faults.damage import check_damaged
from sebra.engine import packing, session

GROUP = "long runs"
RANK = ("--device", "cpu", "--set", "resolution=epoch")
LONG = (
    *RANK, "--set", "p_critical=0.9", "--set", "epochs=400", "--set", "lr=0.05", "--set", "batch=64"
)  # fmt: skip
SHORT = (*RANK, "--set", "p_critical=0.6", "--set", "epochs=6", "--set", "lr=1.0")


def ranked(place: Place, data: Path, name: str, *options: object) -> bytes:
    done = place.run("rank", data, *options, "--out", place / name)
    assert done.status == 0, done.stderr
    return (place / name / "ranking.parquet").read_bytes()


def resumed(place: Place, data: Path, name: str, *options: object) -> bytes:
    done = place.run("rank", data, *options, "--out", place / name, "--resume")
    assert done.status == 0, done.stderr
    assert not (place / name / "checkpoint").exists()
    return (place / name / "ranking.parquet").read_bytes()


def no_leftovers(folder: Path) -> bool:
    return not [p for p in folder.rglob("*") if p.name.endswith(".tmp")]


def broken_off(place: Place, data: Path, after: int, *options: object) -> Path:
    """A rank run that an error of the device ends after so many epochs, with a checkpoint."""
    from sebra.ranking import sebra

    epochs: list[int] = []
    trained = sebra.train_epoch

    def fails(*args: object, **more: object) -> float:
        epochs.append(1)
        if len(epochs) > after:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return trained(*args, **more)

    with place.patch.context() as patch:
        patch.setenv("SEBRA_CHECKPOINT_SECONDS", "0")
        patch.setattr(sebra, "train_epoch", fails)
        with pytest.raises(RuntimeError, match="CUDA"):
            place.run("rank", data, *options, "--out", place / "run")
    assert (place / "run" / "checkpoint" / session.STATE).is_file()
    assert not (place / "run" / "ranking.parquet").exists()
    return place / "run" / "checkpoint" / session.STATE


@fault(GROUP, "lost GPU", "checkpoint kept; resumed result equal to the uninterrupted one")
def lost_gpu(place: Place) -> str:
    data = place.npz()
    expected = ranked(place, data, "whole", *SHORT)
    broken_off(place, data, 3, *SHORT)
    assert resumed(place, data, "run", *SHORT) == expected
    return "checkpoint kept; resumed result equal to the uninterrupted one"


def by_signal(number: signal.Signals, status: int) -> Callable[[Place], str]:
    def check(place: Place) -> str:
        data = place.npz(n=400)
        expected = ranked(place, data, "whole", *LONG)
        process = place.start(
            "rank", data, *LONG, "--out", place / "run", SEBRA_CHECKPOINT_SECONDS="0.05"
        )
        until((place / "run" / "checkpoint" / session.STATE).exists, process)
        done = stopped_by(process, number)
        assert done.status == status, done
        assert "Traceback" not in done.stderr
        assert not (place / "run" / "ranking.parquet").exists()
        assert resumed(place, data, "run", *LONG) == expected
        assert no_leftovers(place / "run")
        return f"status {done.status}; resumed result equal to the uninterrupted one"

    return check


EQUAL = "resumed result equal to the uninterrupted one"
fault(GROUP, "SIGINT", f"status 130; {EQUAL}", slow=True)(by_signal(signal.SIGINT, 130))
fault(GROUP, "SIGTERM", f"status 143; {EQUAL}", slow=True)(by_signal(signal.SIGTERM, 143))
fault(GROUP, "SIGKILL", f"status -9; {EQUAL}", slow=True)(by_signal(signal.SIGKILL, -9))


DECODING = "status 143 at once, no cache entry; --resume finishes it"


@fault(GROUP, "SIGTERM while images are decoded", DECODING, slow=True)
def stopped_while_decoding(place: Place) -> str:
    place.pets(n=1500)
    command = ("rank", place / "pets", *QUICK, "--out", place / "run")
    process = place.start(*command)
    cache = place / "cache" / "images"
    until(lambda: any(cache.glob(".building-*")), process)
    done = stopped_by(process, signal.SIGTERM)
    assert done.status == 143, done
    assert "Traceback" not in done.stderr
    assert list(cache.iterdir()) == []
    assert not (place / "run" / "ranking.parquet").exists()
    assert place.run(*command, "--resume").status == 0
    assert (place / "run" / "ranking.parquet").exists()
    assert no_leftovers(place / "run")
    return DECODING


def checkpoint_of(
    name: str, words: str, change: Callable[[Path], object], *options: object
) -> None:
    @fault(GROUP, f"checkpoint {name}", f"refused: {words}")
    def check(place: Place) -> str:
        data = place.npz()
        file = broken_off(place, data, 2, *SHORT)
        change(file)
        before = file.read_bytes()
        line = place.refused(
            words, "rank", data, *SHORT, *options, "--out", place / "run", "--resume"
        )
        assert file.read_bytes() == before
        return line


def rewritten(change: Callable[[dict[str, object], dict[str, object]], object]) -> Callable:
    def write(file: Path) -> None:
        state, header = packing.load(file)
        change(state, header)
        packing.save(file, state, header)

    return write


def untouched(file: Path) -> None:
    pass


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def of_other_shapes(state: dict, header: dict) -> None:
    state["current"]["state"]["bucket"] = torch.zeros(7, dtype=torch.long)


def without_network(state: dict, header: dict) -> None:
    del state["current"]["state"]["network"]


def foreign(file: Path) -> None:
    from safetensors.torch import save_file

    save_file({"fc.weight": torch.zeros(2)}, str(file))


checkpoint_of("of another seed", "seed was 0, now 3", untouched, "--seed", 3)
checkpoint_of("of other settings", "overrides was", untouched, "--set", "beta=2")
checkpoint_of(
    "of another version",
    "version was '0.0.1', now",
    rewritten(lambda state, header: header.update(version="0.0.1")),
)
checkpoint_of("cut in half", "not a checkpoint of Sebra", cut)
checkpoint_of("of other shapes", "does not fit this run", rewritten(of_other_shapes))
checkpoint_of("without a network", "does not fit this run", rewritten(without_network))
checkpoint_of("that is another program's", "not a checkpoint of Sebra", foreign)


@fault(GROUP, "checkpoint of other data", "refused, the difference named")
def checkpoint_of_other_data(place: Place) -> str:
    """What a run binds once the data is read."""
    from sebra.errors import UsageError
    from sebra.samples.fingerprint import fingerprint
    from sebra.samples.open import open_samples

    def start(resume: bool) -> session.Session:
        run = session.Session(place / "checkpoint", {"seed": 0}, resume, every_seconds=0)
        run.bind("content", fingerprint(open_samples(str(place / "pets"))))
        return run

    place.pets()
    for _ in start(False).phase("rank", 1, {}):
        pass
    start(True)
    miniatures.save(place / "pets" / "cat" / "one-more.png", 5)
    with pytest.raises(UsageError, match="content was '12 samples, ") as refused:
        start(True)
    return re.sub(r"[0-9a-f]{12}", "…", place.plain(str(refused.value)))


@fault(GROUP, "disk full at a checkpoint", "run goes on and says so; result the same")
def disk_full_at_checkpoint(place: Place) -> str:
    data = place.npz()
    expected = ranked(place, data, "whole", *SHORT)
    from safetensors import SafetensorError
    from safetensors import torch as tensors

    def full(tensors: object, file: str, metadata: object = None) -> None:
        Path(file).write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with place.patch.context() as patch:
        patch.setenv("SEBRA_CHECKPOINT_SECONDS", "0")
        patch.setattr(tensors, "save_file", full)
        done = place.run("rank", data, *SHORT, "--out", place / "run", "--json")
    assert done.status == 0, done.stderr
    assert "no checkpoint could be written" in " ".join(json.loads(done.stdout)["notes"])
    assert (place / "run" / "ranking.parquet").read_bytes() == expected
    assert no_leftovers(place / "run")
    return "run goes on and says so; result the same"


def failed_write(done: CliResult) -> None:
    assert done.status == 1, done
    assert "No space left on device" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@fault(GROUP, "disk full when the result is written", "status 1, no half file, --resume finishes")
def disk_full_at_result(place: Place) -> str:
    data = place.npz()
    expected = ranked(place, data, "whole", *SHORT)
    saved = parquet.write_table

    def full(table: object, file: IO[bytes]) -> None:
        saved(table, file)
        file.truncate(100)
        raise OSError(28, "No space left on device")

    with place.patch.context() as patch:
        patch.setenv("SEBRA_CHECKPOINT_SECONDS", "0")
        patch.setattr(parquet, "write_table", full)
        done = place.run("rank", data, *SHORT, "--out", place / "run")
    failed_write(done)
    assert "run/ranking.parquet: cannot be written" in done.stderr
    assert "MiB that are free" in done.stderr
    assert not (place / "run" / "ranking.parquet").exists()
    assert not (place / "run" / "metrics.json").exists()
    assert no_leftovers(place / "run")
    assert resumed(place, data, "run", *SHORT) == expected
    return "status 1, no half file, --resume finishes"


@fault(GROUP, "a real disk of 24 KiB", "whole files or none, one line", slow=True)
def really_full_disk(place: Place) -> str:
    data = place.npz(n=4000)
    place.patch.setenv("SEBRA_CHECKPOINT_SECONDS", "0")
    with small_disk(place / "disk", kib=24):
        done = place.run("rank", data, *SHORT, "--out", place / "disk" / "run")
        assert done.status == 1, done
        assert done.stderr.splitlines()[-1].count("No space left") == 1, done.stderr
        assert no_leftovers(place / "disk")
        for file in (place / "disk").rglob("*.parquet"):
            pd.read_parquet(file)
        for file in (place / "disk").rglob("*.safetensors"):
            packing.load(file)
    return "whole files or none, one line"


@fault(GROUP, "disk full for decoded images", "status 1, says how much is missing, nothing left")
def full_cache(place: Place) -> str:
    place.pets(n=8)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    place.patch.setattr(os, "posix_fallocate", full, raising=False)
    done = place.run("rank", place / "pets", *QUICK, "--out", place / "run")
    assert done.status == 1, done
    assert re.search(r"the cache needs 0\.\d*[1-9]\d* MiB more disk space", done.stderr), (
        done.stderr
    )
    assert list((place / "cache" / "images").iterdir()) == []
    assert not (place / "run").exists()
    return "status 1, says how much is missing, nothing left"


@fault(GROUP, "damaged cache entry", "built again, same pixels")
def damaged_cache(place: Place) -> str:
    place.pets(n=8)
    expected = ranked(place, place / "pets", "whole", *QUICK, "--set", "epochs=2")
    for file in (place / "cache").rglob("array.npy"):
        os.truncate(file, 200)
    assert ranked(place, place / "pets", "again", *QUICK, "--set", "epochs=2") == expected
    return "built again, same pixels"


@fault(GROUP, "cache that cannot be written", "a temporary one is used and named")
def locked_cache(place: Place) -> str:
    (place / "cache").write_text("a file in its place", encoding="utf-8")
    place.pets(n=8)
    done = place.run("rank", place / "pets", *QUICK, "--set", "epochs=2", "--out", place / "run")
    assert done.status == 0, done.stderr
    assert (place / "run" / "ranking.parquet").exists()
    return "a temporary one is used and named"


@fault(GROUP, "loss that is not finite", "status 1, batch and epoch named, state kept")
def diverged(place: Place) -> str:
    done = place.run(
        "debias", place.npz(), "--device", "cpu", "--method", "lff", "--set", "lr=1e3",
        "--set", "weight_decay=1e3", "--set", "optimizer=sgd", "--out", place / "run",
    )  # fmt: skip
    assert done.status == 1, done
    line = done.stderr.splitlines()[-1]
    assert re.search(r"loss is (nan|inf) at step \d+ of \d+ \(samples \d+, ", line), line
    assert "its state is kept in" in line
    kept, _ = packing.load(place / "run" / "checkpoint" / session.FAILED)
    assert "network" in kept["current"]["state"]
    assert not (place / "run" / "model.safetensors").exists()
    return "status 1, batch and epoch named, state kept"


def collapsed(name: str, words: str, command: str, *options: str) -> None:
    @fault(GROUP, name, "status 1, one line with what to change, no result")
    def check(place: Place) -> str:
        done = place.run(command, place.npz(), *RANK, *options, "--out", place / "run")
        assert done.status == 1, done
        line = done.stderr.splitlines()[-1]
        assert words in line, line
        assert "--set lr=" in line
        assert not (place / "run" / "ranking.parquet").exists()
        assert not (place / "run" / "metrics.json").exists()
        return place.plain(line.removeprefix("sebra: "))


STILL = ("--set", "epochs=1", "--set", "lr=1e-9")
LEAP = ("--set", "p_critical=0.01")
collapsed("ranking in which nobody is learned", "not one of the 40 samples", "rank", *STILL)
collapsed("ranking with one bucket", "learned in the same round", "rank", *LEAP)


@fault(GROUP, "disk full when the model is written", "status 1, one line, nothing half written")
def disk_full_at_model(place: Place) -> str:
    from safetensors import SafetensorError
    from safetensors import torch as tensors

    def full(tensors: object, file: Path, metadata: object = None) -> None:
        Path(file).write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with place.patch.context() as patch:
        patch.setattr(tensors, "save_file", full)
        done = place.run(
            "debias", place.npz(), "--device", "cpu", "--method", "erm", "--set", "epochs=2",
            "--out", place / "run",
        )  # fmt: skip
    failed_write(done)
    assert "model.safetensors: cannot be written" in done.stderr.splitlines()[-1]
    assert not list((place / "run").glob("model*"))
    assert not (place / "run" / "metrics.json").exists()
    assert no_leftovers(place / "run")
    return "status 1, one line, nothing half written"


@fault(GROUP, "process killed while it wrote a file", "leftover removed, run starts again")
def killed_writer(place: Place) -> str:
    (place / "run").mkdir()
    dead = subprocess.run(["true"], check=True) and 2**22 + 1
    (place / "run" / f".ranking.parquet.{dead}.tmp").write_bytes(b"half")
    ranked(place, place.npz(), "run", *SHORT)
    assert no_leftovers(place / "run")
    return "leftover removed, run starts again"


UNCHANGED = "each set aside with its reason; ranking of the others as without them"


@fault(GROUP, "200 images, 20 damaged in ten ways", UNCHANGED)
def some_damaged(place: Place) -> str:
    return check_damaged(place, 200, 20, epochs=30)


@fault(GROUP, "10,000 images, 500 damaged in ten ways", UNCHANGED, slow=True)
def many_damaged(place: Place) -> str:
    return check_damaged(place, 10_000, 500, epochs=4)
