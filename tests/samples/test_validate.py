"""What every data set must fulfil, whatever it was read from."""

from dataclasses import replace

import numpy as np
import pytest

from sebra.errors import UsageError
from sebra.samples import validate as module
from sebra.samples.table import Attribute, FeatureArray, Samples
from sebra.samples.validate import validate


def sound(n=8):
    return Samples(
        ids=np.array([f"s{i}" for i in range(n)], dtype=object),
        labels=np.arange(n) % 2,
        classes=("a", "b"),
        split=np.zeros(n, np.int8),
        content=FeatureArray(np.ones((n, 3)), np.arange(n)),
        source="here",
    )


def test_sound_samples_pass_unchanged():
    samples = sound()
    assert validate(samples) is samples


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": np.array(["x"] * 8, dtype=object)}, r"id 'x' occurs twice \(again in row 1\)"),
        ({"labels": np.zeros(7, int)}, "y has 7 rows, expected 8"),
        ({"labels": np.full(8, 2)}, "labels outside 0..1"),
        ({"labels": np.zeros(8, int)}, "class 'b' has 0 training samples"),
        ({"labels": np.eye(8, dtype=int)[0]}, "class 'b' has 1 training sample,"),
        ({"classes": ("a",), "labels": np.zeros(8, int)}, "at least two classes, found a"),
        ({"split": np.full(8, 2, np.int8)}, "no training samples"),
        ({"split": np.full(8, 3, np.int8)}, "unknown split"),
        ({"split": np.zeros(3, np.int8)}, "split has 3 rows, expected 8"),
        ({"content": FeatureArray(np.ones((8, 3)), np.arange(5))}, "content has 5 rows"),
        ({"content": FeatureArray(np.ones((8, 0)), np.arange(8))}, "X must be a table"),
        ({"attributes": {"k": Attribute("k", np.zeros(2, int), ("x",))}}, "k has 2 rows"),
    ],
)
def test_each_fault_has_its_line(changes, message):
    with pytest.raises(UsageError, match=message) as caught:
        validate(replace(sound(), **changes))
    assert str(caught.value).startswith("here: ")
    assert "\n" not in str(caught.value)


def test_no_samples():
    with pytest.raises(UsageError, match="holds no samples"):
        validate(sound().take(np.array([], dtype=int)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_must_be_finite_and_the_row_is_named(bad, monkeypatch):
    monkeypatch.setattr(module, "FEATURE_CHUNK", 6)  # several pieces
    values = np.ones((8, 3))
    values[5, 1] = bad
    with pytest.raises(UsageError, match="NaN or infinity in row 5"):
        validate(replace(sound(), content=FeatureArray(values, np.arange(8))))


def test_features_must_be_numbers():
    with pytest.raises(UsageError, match="must hold numbers"):
        validate(replace(sound(), content=FeatureArray(np.full((8, 3), "x"), np.arange(8))))
