"""Passes over samples without gradients: in fixed batches, read ahead, shared by the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sebra.engine import distributed
from sebra.engine.copies import evaluation_copy
from sebra.engine.device import autocast
from sebra.engine.networks import Network
from sebra.engine.task import Task

Forward = Callable[[Tensor], Tensor]
_PROBE = 8


def batches_of(index: Tensor, batch: int) -> Tensor:
    """Cuts `index` into full batches, filling the last one from the front so the shape is fixed."""
    count = len(index)
    steps = max(1, -(-count // batch))
    fill = steps * batch - count
    if fill:
        index = torch.cat([index, index[torch.arange(fill, device=index.device) % count]])
    return index.view(steps, batch)


@torch.no_grad()
def predict(network: Forward, task: Task, index: Tensor, batch: int = 512) -> Tensor:
    """Outputs of `network` for samples `index`, float32 on the device, in fixed batches."""
    if len(index) == 0:
        probe = network(task.batch(torch.zeros(2, dtype=torch.long, device=task.device)))
        return probe.new_zeros((0, *probe.shape[1:])).float()
    return _pass(network, task, index, batch, lambda out, _: out)


@torch.no_grad()
def label_probability(network: nn.Module, task: Task, index: Tensor, batch: int = 512) -> Tensor:
    """p_y: the probability that the network gives to the label, in evaluation mode."""
    if len(index) == 0:
        return torch.zeros(0, device=task.device)

    def of_label(logits: Tensor, rows: Tensor) -> Tensor:
        # Batch by batch: all logits of a million samples and a thousand classes take gigabytes.
        return logits.softmax(1).gather(1, task.targets[rows][:, None]).squeeze(1)

    with evaluating(network):
        return _pass(network, task, index, batch, of_label)


def _pass(
    network: Forward,
    task: Task,
    index: Tensor,
    batch: int,
    finish: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """`finish(outputs, indices)` of every batch, joined."""
    total = len(index)
    index = distributed.part_of(index.to(task.device))
    forward = _evaluation_of(network, task)
    rows = batches_of(index, min(batch, len(index)) if task.device.type == "cpu" else batch)
    out: list[Tensor] = []
    for picked, x in zip(rows, task.inputs.read(task.rows[rows]), strict=True):
        with autocast(task.device):
            outputs = forward(x)
        out.append(finish(outputs.float(), picked))
    return distributed.gathered(torch.cat(out)[: len(index)], total)


def _evaluation_of(network: Forward, task: Task) -> Forward:
    """The network, or on a GPU a copy of it that computes the same with fewer kernels."""
    if task.device.type != "cuda" or not isinstance(network, Network):
        return network
    if not network.is_image or network.training or network.spec.seen:
        return network
    probe = task.inputs.batch(task.rows[:_PROBE])
    copy = evaluation_copy(network.body, network.shift, network.scale, probe)
    if copy is None:
        return network
    folded, head = copy, network.head
    return lambda x: head(folded(x))


@contextmanager
def training_flags_kept(module: nn.Module) -> Iterator[None]:
    """Every module has its own training flag again after the block."""
    flags = [(m, m.training) for m in module.modules()]
    try:
        yield
    finally:
        for m, flag in flags:
            m.training = flag


@contextmanager
def evaluating(network: nn.Module) -> Iterator[nn.Module]:
    """Puts a network into evaluation mode for a block."""
    with training_flags_kept(network):
        yield network.eval()
