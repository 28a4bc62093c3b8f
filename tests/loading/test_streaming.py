"""Batches read ahead from a map are those that plain indexing gives."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from ranking.toys import images, noisy
from sebra.engine.step import (
    TrainStep,
    drawn,
    label_probability,
    make_optimizer,
    train_epoch,
)
from sebra.loading.augment import Augment
from sebra.loading.inputs import Inputs
from sebra.loading.streaming import THREAD, read_ahead
from sebra.samples.table import FeatureArray, ImageArray

CPU = torch.device("cpu")


def reading_threads() -> int:
    return sum(THREAD in t.name for t in threading.enumerate())


def test_batches_come_in_order_and_stay_as_they_are(tmp_path):
    values = np.arange(40 * 3, dtype=np.float32).reshape(40, 3)
    np.save(tmp_path / "x.npy", values)
    source = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    rows = torch.randint(40, (17, 5), generator=torch.Generator().manual_seed(0))
    found = list(read_ahead(source, rows, CPU))
    assert len(found) == 17
    for got, where in zip(found, rows, strict=True):
        assert torch.equal(got, source[where])


def test_stopping_early_ends_the_reading():
    before = reading_threads()
    batches = read_ahead(torch.zeros(10, 2), torch.zeros(50, 4, dtype=torch.long), CPU)
    next(batches)
    batches.close()
    assert reading_threads() == before


def test_an_error_while_reading_is_raised_where_the_batch_is_asked_for():
    rows = torch.tensor([[0, 1], [2, 99]])
    batches = read_ahead(torch.zeros(10, 2), rows, CPU)
    next(batches)
    with pytest.raises(IndexError):
        next(batches)


def contents():
    rng = np.random.default_rng(0)
    rows = np.array([5, 2, 9, 0, 7])
    return [
        ImageArray(rng.integers(256, size=(10, 8, 8, 3), dtype=np.uint8), rows),
        FeatureArray(rng.normal(size=(10, 4)).astype(np.float32), rows),
    ]


@pytest.mark.parametrize("content", contents(), ids=["images", "features"])
def test_streamed_inputs_equal_resident_ones(content):
    here, streamed = Inputs(content, CPU), Inputs(content, CPU, stream=True)
    assert here.resident
    assert not streamed.resident
    rows = torch.tensor([[0, 4], [3, 3], [1, 2]])
    for where, a, b in zip(rows, here.read(rows), streamed.read(rows), strict=True):
        assert torch.equal(a, here.batch(where))
        assert torch.equal(b, a)
        assert torch.equal(streamed.batch(where), a)


def as_stream(task):
    inputs = task.inputs
    array = inputs._array
    kind = ImageArray if inputs.is_image else FeatureArray
    return replace(task, inputs=Inputs(kind(array, np.arange(len(array))), CPU, stream=True))


@pytest.mark.parametrize("make", [lambda: images(n=22), lambda: noisy(n=30)], ids=["images", "x"])
def test_training_and_selecting_from_a_stream_give_the_same_numbers(make):
    found = []
    for made in (make(), as_stream(make())):
        task = replace(made, augment=Augment(flip=True))
        network = task.network()
        optimizer = make_optimizer(network, "sgd", 0.1)

        def loss(index, rand, task=task, network=network):
            logits = network(task.batch(index, rand))
            return torch.nn.functional.cross_entropy(logits, task.targets[index])

        step = TrainStep(network, optimizer, loss, CPU, randoms=task.randoms, task=task)
        generator = task.generator()
        order = drawn(torch.arange(len(task)), 2 * len(task), 6, generator)
        reads = Inputs.map_reads
        losses = train_epoch(step, order, generator)
        p = label_probability(network, task, torch.arange(len(task)), batch=7)
        assert Inputs.map_reads == reads  # nothing was fetched while the device waited
        found.append((losses, p))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_content_staged_for_one_batch_is_not_given_to_another():
    task = as_stream(noisy(n=12))
    index, other = torch.tensor([1, 2]), torch.tensor([1, 2])
    task.inputs.stage(index, torch.full((2, task.inputs.shape[0]), 7.0))
    assert (task.batch(index) == 7).all()
    assert not (task.batch(other) == 7).any()
