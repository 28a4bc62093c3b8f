"""What the penultimate layer of a trained network does on the samples of each class."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sebra.engine.device import autocast
from sebra.engine.networks import Network
from sebra.engine.step import batches_of, evaluating
from sebra.engine.task import Task

_BATCH = 512


class Profile:
    """What the penultimate layer does on each class, gathered in one pass of bounded memory.

    importance[c, j]: mean activation of neuron j over the samples of class c that are also
    predicted as c, times the head's weight. Activations count from the smallest one seen, so that
    they are non-negative (after a ReLU that is the activation itself).
    """

    def __init__(self, network: Network, task: Task, marked: tuple[int, ...] = ()) -> None:
        shape = (task.classes, network.width)
        device = task.device
        self.total = torch.zeros(shape, dtype=torch.float64, device=device)
        self.square = torch.zeros_like(self.total)
        self.right = torch.zeros_like(self.total)
        self.marked = torch.zeros_like(self.total)
        counts = torch.zeros((3, task.classes), dtype=torch.float64, device=device)
        least = torch.full((network.width,), torch.inf, dtype=torch.float64, device=device)
        is_marked = torch.zeros(len(task), dtype=torch.bool, device=device)
        is_marked[torch.tensor(marked, dtype=torch.long, device=device)] = True
        for index, activation, predicted in _activations(network, task):
            y, z = task.targets[index], activation.double()
            least = torch.minimum(least, z.amin(0))
            kinds = (torch.ones_like(y, dtype=torch.bool), predicted == y, is_marked[index])
            for k, (kind, into) in enumerate(
                zip(kinds, (self.total, self.right, self.marked), strict=True)
            ):
                into.index_add_(0, y[kind], z[kind])
                counts[k].index_add_(0, y[kind], torch.ones_like(y[kind], dtype=torch.float64))
            self.square.index_add_(0, y, z * z)
        everyone, right, self.marked_counts = counts[:, :, None]
        self.mean = self.total / everyone.clamp_min(1)
        variance = self.square / everyone.clamp_min(1) - self.mean**2
        self.std = variance.clamp_min(0).sqrt().clamp_min(1e-8)
        over = torch.where(right > 0, self.right / right.clamp_min(1), self.mean)
        self.weight = _head_weight(network)
        self.importance: Tensor = (over - least) * self.weight

    def top(self, c: int, count: int) -> list[int]:
        """The most important neurons of a class, first first."""
        return _largest(self.importance[c], count)

    def excited(self, c: int, count: int) -> list[int]:
        """The neurons through which the marked samples of a class score higher than the class.

        By mean surplus of activation times weight; none where no sample of the class is marked.
        """
        marked = float(self.marked_counts[c])
        if not marked:
            return []
        surplus = (self.marked[c] / marked - self.mean[c]) * self.weight[c]
        higher = int((surplus > 0).sum())
        # Where the marked are the whole class, nothing sets them apart from it.
        return _largest(surplus, min(count, higher)) if higher else self.top(c, count)

    def columns(self, network: Network, task: Task, listed: list[tuple[int, ...]]) -> Tensor:
        """Per sample the listed neurons of its class, standardised within the class."""
        width = max(len(neurons) for neurons in listed)
        padded = [[*neurons, *([0] * (width - len(neurons)))] for neurons in listed]
        which = torch.tensor(padded, dtype=torch.long, device=task.device)
        out = torch.zeros((len(task), width), device=task.device)
        for index, z, _ in _activations(network, task):
            y = task.targets[index]
            chosen = z.double().gather(1, which[y])
            mean, std = self.mean[y].gather(1, which[y]), self.std[y].gather(1, which[y])
            out[index] = ((chosen - mean) / std).float()
        return out


@torch.no_grad()
def _activations(network: Network, task: Task) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Indices, penultimate activations and predicted classes of every sample, batch by batch."""
    batch = min(_BATCH, len(task))
    done = 0
    with evaluating(network):
        for rows in batches_of(torch.arange(len(task)), batch).to(task.device):
            with autocast(task.device):
                z = network.embed(task.batch(rows))
                logits = network.classify(z)
            new = min(batch, len(task) - done)  # the last batch is filled up with early samples
            done += new
            yield rows[:new], z[:new].float(), logits[:new].argmax(1)


def _largest(values: Tensor, count: int) -> list[int]:
    order = values.argsort(descending=True, stable=True)[:count]
    return [int(j) for j in order.cpu()]


def _head_weight(network: Network) -> Tensor:
    weight = network.head.weight
    assert isinstance(weight, Tensor)
    return weight.detach().double()
