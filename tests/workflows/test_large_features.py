"""Features are ranked from the map: memory does not grow with the file."""

from __future__ import annotations

import json

import numpy as np
import pytest


def feature_folder(folder, n, width=512):
    rng = np.random.default_rng(0)
    folder.mkdir()
    y = rng.integers(2, size=n)
    values = np.lib.format.open_memmap(
        folder / "X.npy", mode="w+", dtype=np.float32, shape=(n, width)
    )
    for start in range(0, n, 10_000):
        part = y[start : start + 10_000]
        values[start : start + len(part)] = rng.standard_normal((len(part), width), np.float32)
        values[start : start + len(part), 0] += 3 * part
    values.flush()
    np.save(folder / "y.npy", y)
    return folder


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(cli, tmp_path):
    peak = {}
    for n in (50_000, 150_000):
        data = feature_folder(tmp_path / str(n), n)
        done = cli(
            "rank", data, "--device", "cpu", "--set", "epochs=2", "--json",
            "--out", tmp_path / f"run-{n}",
        )  # fmt: skip
        assert done.status == 0, done.stderr
        peak[n] = json.loads(done.stdout)["peak_memory_mib"]
    more_mib = 100_000 * 512 * 4 / 2**20
    # Of the file only batches are held, beside a few numbers per sample and a sample of fixed
    # size, from which label noise is estimated.
    assert peak[150_000] - peak[50_000] < 0.6 * more_mib
    assert peak[150_000] < 2048
