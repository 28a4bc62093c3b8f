"""Nested state in one file: there and back, and damaged files refused by name."""

from __future__ import annotations

import pytest
import torch

from sebra.engine import packing
from sebra.errors import UsageError

STATE = {
    "weights": torch.arange(6.0).view(2, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 4),
    "scalar": torch.tensor(7),
    "nested": [1, 2.5, "text", None, True, {"deep": torch.tensor([1, 2])}, (3, 4)],
    "optimizer": {0: {"step": torch.tensor(3.0)}, 1: {}},
    "": {},
}


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def test_round_trip_keeps_values_types_and_integer_keys(tmp_path):
    file = tmp_path / "deep" / "state.safetensors"
    header = {"command": "rank", "seed": 0, "data": "pictures/ä"}
    packing.save(file, STATE, header)
    state, found = packing.load(file)
    assert same(STATE, state)
    assert found == header
    assert [p.name for p in file.parent.iterdir()] == [file.name]


def test_tensors_that_share_memory_are_saved_each_on_its_own(tmp_path):
    base = torch.arange(4.0)
    packing.save(tmp_path / "x", {"a": base, "b": base[1:], "c": base.view(2, 2).t()}, {})
    state, _ = packing.load(tmp_path / "x")
    assert torch.equal(state["b"], base[1:])
    assert torch.equal(state["c"], base.view(2, 2).t())


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "x"
    packing.save(file, {"a": 1}, {})
    for bad in ({"a": object()}, {(1, 2): "tuple as key"}):
        with pytest.raises(TypeError, match="in a checkpoint"):
            packing.save(file, bad, {})
    assert packing.load(file) == ({"a": 1}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def cut(file):
    file.write_bytes(file.read_bytes()[:-10])


def scrambled(file):
    file.write_bytes(b"\xff" * 64)


def emptied(file):
    file.write_bytes(b"")


def foreign(file):
    from safetensors.torch import save_file

    save_file({"fc.weight": torch.zeros(2)}, str(file))


def without_tensors(file):
    from safetensors.torch import save_file

    save_file({}, str(file), metadata={"header": "{}", "state": '{"__tensor__": "0"}'})


def absent(file):
    file.unlink()


@pytest.mark.parametrize(
    "damage", [cut, scrambled, emptied, foreign, without_tensors, absent], ids=lambda f: f.__name__
)
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    file = tmp_path / "state.safetensors"
    packing.save(file, STATE, {})
    damage(file)
    with pytest.raises(UsageError, match=r"state\.safetensors: not a checkpoint"):
        packing.load(file)
