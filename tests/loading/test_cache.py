"""The cache: built once, whole or not at all, safe with two builders, never in the way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sebra.loading.cache import Cache, cache_root, digest


def count_up(array):
    array[:] = np.arange(array.size).reshape(array.shape)
    return {"made": True}


def must_not_run(array):
    raise AssertionError("built again")


def test_second_call_reads_the_first_ones_entry(tmp_path):
    first, _ = Cache(tmp_path).array("things", ["a", 1], (3, 4), np.int32, count_up)
    again, meta = Cache(tmp_path).array("things", ["a", 1], (3, 4), np.int32, must_not_run)
    assert np.array_equal(again, np.arange(12).reshape(3, 4))
    assert meta == {"made": True}
    assert isinstance(first, np.memmap)
    assert not again.flags.writeable


@pytest.mark.parametrize(
    ("parts", "shape", "dtype"),
    [(["b", 1], (3,), "i4"), (["a", 1], (4,), "i4"), (["a", 1], (3,), "i8")],
)
def test_other_key_shape_or_type_is_another_entry(tmp_path, parts, shape, dtype):
    Cache(tmp_path).array("things", ["a", 1], (3,), "i4", count_up)
    with pytest.raises(AssertionError, match="built again"):
        Cache(tmp_path).array("things", parts, shape, dtype, must_not_run)


def test_digest_keeps_parts_apart():
    assert digest(["ab", "c"]) != digest(["a", "bc"])


def test_failed_build_leaves_nothing(tmp_path):
    def fail(array):
        array[:] = 7
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        Cache(tmp_path).array("things", ["a"], (3,), "i4", fail)
    assert list((tmp_path / "things").iterdir()) == []


def test_damaged_entry_is_built_again(tmp_path):
    cache = Cache(tmp_path)
    cache.array("things", ["a"], (1000,), "i4", count_up)
    (entry,) = (tmp_path / "things").iterdir()
    data = (entry / "array.npy").read_bytes()
    (entry / "array.npy").write_bytes(data[: len(data) // 2])
    array, _ = cache.array("things", ["a"], (1000,), "i4", count_up)
    assert array[-1] == 999


def test_when_another_builder_is_first_its_entry_is_used(tmp_path):
    def slow(array):
        Cache(tmp_path).array("things", ["a"], (3,), "i4", lambda out: count_up(out) | {"who": 1})
        array[:] = -1
        return {"who": 2}

    array, meta = Cache(tmp_path).array("things", ["a"], (3,), "i4", slow)
    assert meta["who"] == 1
    assert array.tolist() == [0, 1, 2]
    assert len(list((tmp_path / "things").iterdir())) == 1


def test_two_processes_at_once(tmp_path):
    code = (
        "import sys, pathlib, numpy as np\n"
        "from sebra.loading.cache import Cache\n"
        "def fill(a):\n    a[:] = np.arange(len(a))\n    return {}\n"
        "a, _ = Cache(pathlib.Path(sys.argv[1])).array('t', ['k'], (200000,), 'i8', fill)\n"
        "assert a[-1] == 199999 and a[0] == 0\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], env=os.environ | {"PYTHONPATH": source}
        )
        for _ in range(3)
    ]
    assert [job.wait(60) for job in jobs] == [0, 0, 0]
    assert len(list((tmp_path / "t").iterdir())) == 1


def test_leftovers_of_dead_builders_are_removed_and_of_living_ones_kept(tmp_path):
    import socket

    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    host = socket.gethostname()
    dead = tmp_path / "things" / f".building-{host}-{finished.pid}-00000000"
    alive = tmp_path / "things" / f".building-{host}-{os.getppid()}-00000000"
    dead.mkdir(parents=True)
    alive.mkdir()
    Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up)
    assert not dead.exists()
    assert alive.exists()


def test_unwritable_place_moves_to_a_temporary_one_and_says_so(tmp_path, caplog):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder", encoding="utf-8")
    cache = Cache(blocker / "cache")
    array, _ = cache.array("things", ["a"], (3,), "i4", count_up)
    assert array.tolist() == [0, 1, 2]
    assert "SEBRA_CACHE" in (cache.note or "")
    assert "SEBRA_CACHE" in caplog.text


def test_empty_array(tmp_path):
    array, _ = Cache(tmp_path).array("things", ["a"], (0, 4), "f4", lambda out: {})
    assert array.shape == (0, 4)


def test_root_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path / "here"))
    assert cache_root() == tmp_path / "here"
    monkeypatch.delenv("SEBRA_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "sebra"


def test_meta_is_plain_json(tmp_path):
    Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up)
    (meta,) = tmp_path.rglob("meta.json")
    kept = json.loads(meta.read_text(encoding="utf-8"))
    assert kept.pop("checksum")
    assert kept == {"made": True}


@pytest.mark.parametrize("name", ["array.npy", "meta.json"])
def test_a_changed_byte_anywhere_makes_the_entry_again(tmp_path, name, caplog):
    """Whatever a reader would make of it: the content is what counts."""
    Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up)
    (file,) = tmp_path.rglob(name)
    good = file.read_bytes()
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x15]) + good[at + 1 :])
        array, meta = Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up)
        assert (array.tolist(), meta) == ([0, 1, 2], {"made": True})
    assert caplog.text.count("is damaged and is made again") == len(good)


def test_an_entry_whose_json_lost_a_field_is_made_again(tmp_path):
    Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up)
    (meta,) = tmp_path.rglob("meta.json")
    kept = json.loads(meta.read_text(encoding="utf-8"))
    meta.write_text(json.dumps({"checksum": kept["checksum"]}), encoding="utf-8")
    assert Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up)[1] == {"made": True}


def test_a_whole_entry_that_cannot_be_read_is_made_again(tmp_path, caplog):
    """It is as it was written, but not by this version."""
    Cache(tmp_path).array("things", ["a"], (3,), "i4", lambda out: {})
    made = Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up, lambda _, m: m["made"])
    assert (made[0].tolist(), made[1]) == ([0, 1, 2], {"made": True})
    assert caplog.text.count("is damaged and is made again") == 1


@pytest.mark.parametrize("damage", [b"", None])
def test_an_entry_that_is_damaged_as_soon_as_it_is_there_still_serves(
    tmp_path, monkeypatch, damage
):
    def publish(building, place, really=Cache._publish):
        really(building, place)
        (place / "array.npy").unlink()
        if damage is not None:
            (place / "array.npy").write_bytes(damage)

    monkeypatch.setattr(Cache, "_publish", staticmethod(publish))
    array, meta = Cache(tmp_path).array("things", ["a"], (3,), "i4", count_up)
    assert (array.tolist(), meta) == ([0, 1, 2], {"made": True})
