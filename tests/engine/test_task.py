"""What a ranker gets to see."""

from __future__ import annotations

import dataclasses

import torch

from ranking.toys import images, noisy
from sebra.engine.task import Task
from sebra.loading.augment import Augment


def test_a_task_has_no_place_for_attributes():
    assert {f.name for f in dataclasses.fields(Task)} == {
        "inputs", "rows", "targets", "classes", "build", "device", "seed", "augment",
        "core", "figures", "views",
    }  # fmt: skip


def test_a_subset_is_indexed_from_zero():
    task = noisy(n=20)
    index = torch.tensor([7, 3, 11])
    part = task.subset(index)
    assert len(part) == 3
    torch.testing.assert_close(part.batch(torch.arange(3)), task.batch(index))
    assert part.targets.tolist() == task.targets[index].tolist()
    nested = part.subset(torch.tensor([2]))
    torch.testing.assert_close(nested.batch(torch.tensor([0])), task.batch(torch.tensor([11])))


def test_networks_and_draws_follow_the_seed_and_the_offset():
    task = images()
    other = dataclasses.replace(task, seed=1)

    def first(network):
        return network.body[0].weight

    assert torch.equal(first(task.network()), first(task.network()))
    assert not torch.equal(first(task.network()), first(task.network(1)))
    assert not torch.equal(first(task.network()), first(other.network()))
    draws = [torch.rand(4, generator=g) for g in (task.generator(), task.generator(1))]
    assert torch.equal(draws[0], torch.rand(4, generator=task.generator()))
    assert not torch.equal(*draws)


def test_only_images_are_augmented_and_only_with_random_numbers():
    augment = Augment(flip=True)
    pictures = dataclasses.replace(images(), augment=augment)
    index = torch.arange(4)
    assert pictures.randoms == 1
    plain = pictures.batch(index)
    assert torch.equal(plain, pictures.inputs.batch(index))
    mirrored = pictures.batch(index, torch.zeros(4, 1))
    assert torch.equal(mirrored, plain.flip(3))
    numbers = dataclasses.replace(noisy(), augment=augment)
    assert numbers.randoms == 0
    assert torch.equal(numbers.batch(index, torch.zeros(4, 0)), numbers.batch(index))
