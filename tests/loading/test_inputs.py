"""Content by row: which row of the array a sample's number leads to, and nothing copied."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sebra.loading.inputs import Inputs
from sebra.samples.table import FeatureArray, ImageArray

CPU = torch.device("cpu")
ROWS = {
    "all": np.arange(10),
    "part": np.array([7, 2, 9, 2]),
    "reversed": np.arange(10)[::-1],
    "none but one": np.array([5]),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_features_by_row(rows, dtype):
    values = np.random.default_rng(0).normal(size=(10, 3)).astype(dtype)
    inputs = Inputs(FeatureArray(values, rows), CPU)
    assert len(inputs) == len(rows)
    assert inputs.shape == (3,)
    assert not inputs.is_image
    index = torch.tensor([len(rows) - 1, 0, 0])
    np.testing.assert_array_equal(inputs.batch(index).numpy(), values[rows[index.numpy()]])


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_images_by_row_with_channels_first(rows):
    pixels = np.random.default_rng(0).integers(0, 256, (10, 4, 5, 3)).astype(np.uint8)
    inputs = Inputs(ImageArray(pixels, rows), CPU)
    assert inputs.is_image
    batch = inputs.batch(torch.arange(len(rows)))
    assert batch.dtype == torch.uint8
    np.testing.assert_array_equal(batch.numpy(), pixels[rows].transpose(0, 3, 1, 2))
    assert batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_memory_map_is_read_in_place_and_left_as_it_is(tmp_path, mode):
    values = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.save(tmp_path / "X.npy", values)
    before = (tmp_path / "X.npy").read_bytes()
    mapped = np.load(tmp_path / "X.npy", mmap_mode=mode)
    inputs = Inputs(FeatureArray(mapped, np.arange(50)), CPU)
    batch = inputs.batch(torch.tensor([3, 44]))
    np.testing.assert_array_equal(batch.numpy(), values[[3, 44]])
    batch.zero_()
    np.testing.assert_array_equal(inputs.batch(torch.tensor([3])).numpy(), values[[3]])
    assert (tmp_path / "X.npy").read_bytes() == before


def test_an_array_in_memory_is_shared_not_copied():
    values = np.zeros((5, 2), dtype=np.float32)
    inputs = Inputs(FeatureArray(values, np.arange(5)), CPU)
    values[3] = 8
    assert inputs.batch(torch.tensor([3])).tolist() == [[8, 8]]


def test_a_read_only_array_in_memory_is_accepted():
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    values.flags.writeable = False
    inputs = Inputs(FeatureArray(values, np.arange(3)), CPU)
    assert inputs.batch(torch.tensor([2])).tolist() == [[4, 5]]


@pytest.mark.gpu
@pytest.mark.parametrize("share", [0.5, 0.0], ids=["resident", "streamed"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_on_a_gpu_resident_and_streamed_batches_are_the_same(rows, share):
    pixels = np.random.default_rng(0).integers(0, 256, (10, 4, 5, 3)).astype(np.uint8)
    cuda = torch.device("cuda")
    inputs = Inputs(ImageArray(pixels, rows), cuda, share)
    assert inputs.resident == (share > 0)
    batch = inputs.batch(torch.arange(len(rows), device=cuda))
    assert batch.is_cuda
    np.testing.assert_array_equal(batch.cpu().numpy(), pixels[rows].transpose(0, 3, 1, 2))
