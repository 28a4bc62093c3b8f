"""Seconds per phase and peak memory."""

from __future__ import annotations

import contextlib
import gc
import mmap
import threading
import time

import numpy as np
import pytest

from sebra.runs.meter import Meter


def test_seconds_add_up_by_phase_even_when_one_fails():
    meter = Meter()
    for _ in range(2):
        with meter.phase("rank"):
            time.sleep(0.03)
    with pytest.raises(ValueError, match="inside"), meter.phase("decode"):
        raise ValueError("inside")
    found = meter.result()["seconds"]
    assert list(found) == ["rank", "decode", "total"]
    assert 0.05 < found["rank"] < 2
    assert found["total"] >= found["rank"]


def test_a_run_that_fails_leaves_no_thread():
    before = set(threading.enumerate())

    def run():
        meter = Meter()
        with meter.phase("rank"):
            raise ValueError("inside")

    with contextlib.suppress(ValueError):
        run()
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before


def test_the_peak_stays_when_the_memory_is_given_back():
    meter = Meter()
    before = meter.result()["peak_memory_mib"]
    meter = Meter()
    size = 64 * 2**20
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, size, kind) as block:  # not from the heap, which may hold freed memory
        block.write(b"x" * size)
        time.sleep(0.3)
    assert meter.result()["peak_memory_mib"] > before + 50


def test_mapped_files_are_not_counted(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(64 * 2**20, dtype=np.uint8))
    before = Meter().result()["peak_memory_mib"]
    meter = Meter()
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert int(mapped.sum(dtype=np.int64)) == 64 * 2**20
    time.sleep(0.3)
    assert meter.result()["peak_memory_mib"] < before + 32


def test_a_phase_inside_another_counts_for_itself_alone():
    meter = Meter()
    with meter.phase("open"):
        time.sleep(0.02)
        for _ in range(2):
            with meter.phase("decode"):
                time.sleep(0.1)
        with meter.phase("open"):  # the same again
            time.sleep(0.02)
    found = meter.result()["seconds"]
    assert 0.2 <= found["decode"] < found["total"]
    assert 0.04 <= found["open"] <= found["total"] - found["decode"] + 0.002
    assert found["decode"] + found["open"] == pytest.approx(found["total"], rel=0.1)


def test_the_first_meter_of_a_command_counts_from_the_start_of_the_process(monkeypatch):
    monkeypatch.setattr(Meter, "whole_process", True)
    first, second = Meter().result()["seconds"], Meter().result()["seconds"]
    assert first["start"] > 0.1  # this very process has loaded pytest and numpy
    assert first["total"] >= first["start"]
    assert "start" not in second
