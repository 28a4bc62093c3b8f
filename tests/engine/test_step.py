"""Batches of one shape, the training step, and passes over samples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ranking.toys import images, noisy
from sebra.engine.step import (
    TrainStep,
    batches_of,
    drawn,
    evaluating,
    label_probability,
    make_optimizer,
    predict,
    set_lr,
    shuffled,
    train_epoch,
)
from sebra.errors import NumericalError

counts, batches = st.integers(1, 70), st.integers(1, 20)


@given(counts, batches)
def test_batches_keep_the_order_and_fill_the_last_from_the_front(count, batch):
    index = torch.arange(100, 100 + count)
    out = batches_of(index, batch)
    assert out.shape == (-(-count // batch), batch)
    flat = out.flatten().tolist()
    assert flat[:count] == index.tolist()
    assert flat[count:] == [int(index[k % count]) for k in range(len(flat) - count)]


@given(counts, batches, st.integers(0, 3))
def test_shuffled_covers_every_sample(count, batch, seed):
    index = torch.arange(count) * 3
    out = shuffled(index, batch, torch.Generator().manual_seed(seed))
    assert out.shape == (-(-count // batch), batch)
    assert sorted(out.flatten()[:count].tolist()) == index.tolist()


@given(counts, st.integers(1, 90), batches)
def test_drawn_draws_enough_and_only_from_the_pool(count, draws, batch):
    index = torch.arange(count) * 2 + 1
    out = drawn(index, draws, batch, torch.Generator().manual_seed(0))
    assert out.shape[1] == batch
    assert draws <= out.numel() < draws + batch
    assert set(out.flatten().tolist()) <= set(index.tolist())


def test_draws_are_spread_evenly():
    out = drawn(torch.arange(10), 20_000, 100, torch.Generator().manual_seed(0))
    share = torch.bincount(out.flatten(), minlength=10) / out.numel()
    assert float((share - 0.1).abs().max()) < 0.01


@pytest.mark.parametrize("task", [noisy(n=37), images(n=11)], ids=["features", "images"])
@pytest.mark.parametrize("batch", [1, 5, 8, 512])
def test_predict_equals_a_plain_forward(task, batch):
    network = task.network()
    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([3, 0, 9, 9, 4, 1, 10])
    with evaluating(network), torch.no_grad():
        found = predict(network, task, index, batch)
        expected = network(task.inputs.batch(index))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_predict_of_nobody_has_the_right_width():
    task = noisy()
    assert predict(task.network(), task, torch.zeros(0, dtype=torch.long)).shape == (0, 3)


def test_label_probability_is_that_of_the_label_in_evaluation_mode():
    task = images(n=10)
    network = task.network()
    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    network.train()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    index = torch.tensor([2, 7, 5])
    p = label_probability(network, task, index)
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name  # batch statistics were not touched
    network.eval()
    with torch.no_grad():
        probs = network(task.inputs.batch(index)).softmax(1)
    expected = torch.stack([probs[k, task.targets[i]] for k, i in enumerate(index)])
    torch.testing.assert_close(p, expected)


def test_evaluating_gives_the_mode_back_after_an_error():
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)).train()
    network[0].eval()  # frozen by whoever made it
    seen = []

    def fails() -> None:
        with evaluating(network):
            seen.append(any(m.training for m in network.modules()))
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails()
    assert seen == [False]
    assert [m.training for m in network.modules()] == [True, False, True]


def test_a_loss_that_is_not_finite_names_the_step_and_its_samples():
    task = noisy(n=12)
    network = task.network()
    optimizer = make_optimizer(network, "sgd", 0.1)

    def loss(index, rand):
        bad = (index == 9).any()
        return network(task.batch(index)).sum() * torch.where(bad, torch.nan, 1.0)

    step = TrainStep(network, optimizer, loss, task.device)
    order = torch.arange(12).view(4, 3)  # sample 9 is in the last of four batches
    with pytest.raises(NumericalError, match=r"nan at step 3 of 4 \(samples 9, 10, 11"):
        train_epoch(step, order, torch.Generator())


def test_an_epoch_takes_one_step_per_batch_and_returns_the_mean_loss():
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    holder = torch.nn.Module()
    holder.weight = weight
    seen = []

    def loss(index, rand):
        seen.append((index.tolist(), tuple(rand.shape)))
        return (weight * index.float().mean()).sum()

    step = TrainStep(
        holder, make_optimizer(holder, "sgd", 0.5), loss, torch.device("cpu"), randoms=2
    )
    mean = train_epoch(step, torch.tensor([[0, 2], [4, 4]]), torch.Generator())
    assert seen == [([0, 2], (2, 2)), ([4, 4], (2, 2))]
    # gradients 1 and 4, rate 0.5: the weight goes 1, 0.5, -1.5; losses 1 and 0.5 * 4
    assert float(weight.detach()) == pytest.approx(-1.5)
    assert mean == pytest.approx((1 + 2) / 2)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_the_rate_is_changed_in_place(name):
    network = torch.nn.Linear(1, 1)
    optimizer = make_optimizer(network, name, 0.1)
    set_lr(optimizer, 0.0)
    before = network.weight.detach().clone()
    network(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert torch.equal(network.weight.detach(), before)
