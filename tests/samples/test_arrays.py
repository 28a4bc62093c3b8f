"""Features in NumPy files."""

import os

import numpy as np
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import Fault


def make_npz(root, **changes):
    return str(miniatures.npz(root / "x.npz", **changes))


def make_folder(root, **changes):
    return str(miniatures.array_folder(root / "d", **changes))


@pytest.mark.parametrize("make", [make_npz, make_folder])
def test_both_forms_hold_the_same(tmp_path, make):
    samples = open_samples(make(tmp_path))
    wanted = miniatures.features()
    assert np.array_equal(samples.content.values, wanted["X"])
    assert samples.classes == ("0", "1")
    assert samples.ids[:2].tolist() == ["0", "1"]
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [40, 10, 10]
    assert samples.attributes["cue"].codes.tolist() == wanted["cue"].tolist()


def test_the_folder_form_is_mapped(tmp_path):
    assert isinstance(open_samples(make_folder(tmp_path)).content.values, np.memmap)


def test_names_for_labels_and_splits(tmp_path):
    changes = {
        "y": np.array(["no", "yes"] * 30),
        "split": np.array(["train"] * 40 + ["val"] * 10 + ["test"] * 10),
    }
    samples = open_samples(make_npz(tmp_path, **changes))
    assert samples.classes == ("no", "yes")
    assert len(samples.rows("test")) == 10


@pytest.mark.parametrize("make", [make_npz, make_folder])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.zeros(7)}, r"y has shape \(7,\), expected \(60,\)"),
        ({"y": np.zeros(60)}, "at least two classes"),
        ({"y": np.arange(60) / 7}, "whole numbers"),
        ({"X": np.ones(60)}, "must be a table n x d"),
        ({"X": np.full((60, 2), np.nan)}, "NaN or infinity in row 0"),
        ({"X": np.full((60, 2), "a")}, "must hold numbers"),
        ({"split": np.full(60, 7)}, "unknown split '7'"),
        ({"split": np.zeros(3)}, r"split has shape \(3,\)"),
        ({"split": np.ones(60)}, "no training samples"),
        ({"y": np.array([{}] * 60, dtype=object)}, "cannot be read|not a readable"),
    ],
)
def test_wrong_arrays(tmp_path, make, changes, message):
    with pytest.raises(UsageError, match=message) as caught:
        open_samples(make(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_missing_arrays(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.ones((4, 2)))
    with pytest.raises(UsageError, match=r"no array 'y' \(has: X\)"):
        open_samples(str(tmp_path / "x.npz"))
    np.save(tmp_path / "y.npy", np.ones(4))
    with pytest.raises(UsageError, match="no array 'X'"):
        open_samples(str(tmp_path))


def test_not_an_archive(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"hello")
    with pytest.raises(UsageError, match=r"not a readable \.npz"):
        open_samples(str(tmp_path / "x.npz"))


def test_dropping_faulty_rows_keeps_the_rest_in_place(tmp_path):
    samples = open_samples(make_npz(tmp_path))
    kept = samples.without([Fault("3", "bad"), Fault("5", "bad")])
    assert kept.ids[:5].tolist() == ["0", "1", "2", "4", "6"]
    assert np.array_equal(kept.content.values[kept.content.rows[3]], samples.content.values[4])
    assert [f.id for f in kept.faults] == ["3", "5"]


@pytest.mark.parametrize("kind", [">f4", ">f8", "longdouble", "<u2", "u4", "u8", ">i8"])
def test_numbers_that_torch_has_no_type_for_are_converted(tmp_path, kind):
    import torch

    x = np.abs(miniatures.features()["X"] * 10).astype(kind)
    samples = open_samples(str(miniatures.npz(tmp_path / "x.npz", X=x)))
    assert np.allclose(torch.from_numpy(samples.content.values).double(), x.astype(float))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array([b"cat", "é".encode()] * 30), {"cat", "é"}),
        (np.array(["cat", "\ud800"] * 30), {"cat", "\\ud800"}),
        (np.array([1, 2] * 30, dtype=">i8"), {"1", "2"}),
        (np.array([1, 2] * 30, dtype="longdouble"), {"1", "2"}),
    ],
)
def test_labels_of_odd_types_become_class_names(tmp_path, labels, classes):
    samples = open_samples(str(miniatures.npz(tmp_path / "x.npz", y=labels)))
    assert set(samples.classes) == classes


@pytest.mark.parametrize("kind", ["M8[D]", "c8", "V8"])
def test_what_cannot_name_a_class_is_refused(tmp_path, kind):
    with pytest.raises(UsageError, match="y must hold class names or whole numbers"):
        open_samples(str(miniatures.npz(tmp_path / "x.npz", y=np.zeros(60, dtype=kind))))


def test_a_number_that_float32_cannot_hold_is_refused_with_its_row(tmp_path):
    x = miniatures.features()["X"].astype(float)
    x[9, 1] = 1e300
    with pytest.raises(UsageError, match="a number above 1e30 in row 9"):
        open_samples(str(miniatures.npz(tmp_path / "x.npz", X=x)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["x.npz", "arrays/X.npy"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "y.npy", np.zeros(3))
    os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match=r"is no file|not a readable \.npz"):
        open_samples(str(tmp_path / name.split("/", maxsplit=1)[0]))


@pytest.mark.parametrize("make", [make_npz, make_folder])
def test_truth_values_are_numbers(tmp_path, make):
    wanted = miniatures.features()["X"] > 0
    samples = open_samples(make(tmp_path, X=wanted))
    assert samples.content.values.dtype == np.uint8
    assert np.array_equal(samples.content.values, wanted)
