"""Several processes, started by `accelerate launch -m sebra …` or `torchrun -m sebra …`.

All processes make the same draws from the same seed. Each trains on its share of every batch and
gradients are averaged; each evaluates its share of the samples and the results are gathered once
per pass. So every process holds the same weights and the same ranks at all times, and only the
main one writes files and prints. Communication is Accelerate's; with one process nothing happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sebra.errors import UsageError
from sebra.processes import number, require_launcher, size


def start(name: str) -> torch.device | None:
    """Joins the processes for a run on `name` (auto, cpu or cuda) and returns this one's device.

    None where there is one process only.
    """
    if size() == 1:
        return None
    require_launcher()
    from accelerate import PartialState

    on_cpu = name == "cpu" or not torch.cuda.is_available()
    state: Any = PartialState(cpu=on_cpu)
    device = torch.device(state.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def share(batch: Tensor, dim: int = 0) -> Tensor:
    """This process's part of a batch, cut along `dim`."""
    count = size()
    if count == 1:
        return batch
    if batch.shape[dim] < count:
        raise UsageError(
            f"{count} processes share batches of {batch.shape[dim]}; start fewer processes or "
            "raise --set batch=…"
        )
    return batch.tensor_split(count, dim)[number()]


def share_weight(batch: int) -> float:
    """What this process's mean loss counts, so that the average is the mean over the batch."""
    count = size()
    if count == 1:
        return 1.0
    mine = batch // count + (number() < batch % count)
    return mine * count / batch


def average(tensors: Iterable[Tensor]) -> None:
    """Replaces tensors by their mean over the processes, in place, in one exchange."""
    if size() == 1:
        return
    from accelerate.utils import reduce

    found = list(tensors)
    if not found:
        return
    flat = torch.cat([t.reshape(-1).float() for t in found])
    mean = reduce(flat, reduction="mean")
    for tensor, part in zip(found, mean.split([t.numel() for t in found]), strict=True):
        tensor.copy_(part.view_as(tensor))


def average_gradients(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """The gradients of all processes become their mean."""
    if size() == 1:
        return
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    parameters = (p for group in groups for p in group["params"])
    average(p.grad for p in parameters if p.grad is not None)


def average_statistics(network: nn.Module) -> None:
    """Batch-norm statistics, which each process gathered on its own share, become their mean."""
    if size() > 1:
        average(b for b in network.buffers() if b.is_floating_point())


def part_of(index: Tensor) -> Tensor:
    """This process's part of the samples, filled up so that all parts have one length."""
    if size() == 1:
        return index
    length = -(-len(index) // size())
    first = number() * length
    return index[torch.arange(first, first + length, device=index.device) % len(index)]


def gathered(part: Tensor, total: int) -> Tensor:
    """The first `total` rows of all processes' equal parts, in order of the processes."""
    if size() == 1:
        return part[:total]
    from accelerate.utils import gather

    every: Tensor = gather(part.contiguous())
    return every[:total]


@contextlib.contextmanager
def main_first() -> Iterator[None]:
    """The main process runs the block first, so that the others find its work in the cache."""
    if size() == 1:
        yield
        return
    from accelerate import PartialState

    state: Any = PartialState()
    with state.main_process_first():
        yield
