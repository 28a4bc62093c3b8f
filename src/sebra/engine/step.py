"""The training step that every method repeats, and the order in which it meets the samples.

Batch shapes never change, so that cuDNN tunes once and a CUDA graph can be replayed; nothing here
waits for the device inside an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from inspect import unwrap
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn

from sebra import processes
from sebra.engine import distributed
from sebra.engine.device import autocast, wait_until_ready
from sebra.engine.passes import batches_of, evaluating, label_probability, predict
from sebra.engine.task import Task
from sebra.errors import NumericalError
from sebra.loading.inputs import Inputs

__all__ = [
    "TrainStep",
    "batches_of",
    "drawn",
    "evaluating",
    "label_probability",
    "make_optimizer",
    "predict",
    "set_back",
    "set_lr",
    "shuffled",
    "train_epoch",
    "weighted_draws",
]

Loss = Callable[[Tensor, Tensor], Tensor]  # (index, rand) -> scalar loss
_WARM_STEPS = 3


def make_optimizer(
    network: nn.Module, name: str, lr: float, weight_decay: float = 0.0, momentum: float = 0.0
) -> torch.optim.Optimizer:
    """SGD, Adam or AdamW, fused where the device has it; the rate is a tensor on CUDA."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    cuda = parameters[0].is_cuda
    rate: float | Tensor = torch.tensor(lr, device=parameters[0].device) if cuda else lr
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    more: dict[str, Any] = {"momentum": momentum} if name == "sgd" else {"capturable": cuda}
    kind = _unwrapped(kinds[name])
    return kind(parameters, lr=rate, weight_decay=weight_decay, fused=cuda or None, **more)


@cache
def _unwrapped(kind: Any) -> Callable[..., torch.optim.Optimizer]:
    """The optimiser without what torch wraps its methods in.

    The first call of a wrapped one loads torch's compiler, which takes seconds.
    """
    methods = {name: unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    methods["step"] = torch.no_grad()(unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Changes the learning rate in place, also under a captured graph."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


@torch.no_grad()
def set_back(
    network: nn.Module, optimizer: torch.optim.Optimizer, start: Mapping[str, Tensor]
) -> None:
    """The network as in `start` and its optimiser as if new, in the tensors that they have.

    A step that was captured in a graph goes on with them; building both anew takes longer than many
    a training.
    """
    network.load_state_dict(start)
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


class TrainStep:
    """Forward, backward, update for one batch of sample indices.

    `loss(index, rand)` computes the scalar to minimise. `randoms` is how many uniform numbers per
    sample it wants. On CUDA the step is captured into a graph after a few plain steps, so anything
    `loss` reads must be a tensor that is updated in place. `task` lets content that does not fit on
    the device be read ahead; a loss that asks for other samples than its own fetches them itself.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        loss: Loss,
        device: torch.device,
        randoms: int = 0,
        graph: bool = True,
        task: Task | None = None,
    ) -> None:
        self.network = network
        self.task = task
        self.optimizers = (
            [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        )
        self.loss = loss
        self.device = device
        self.randoms = randoms
        capturable = getattr(network, "capturable", True)
        one = processes.size() == 1  # gradients are exchanged outside of any graph
        self._use_graph = graph and capturable and one and device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = 0
        self._index = self._rand = self._out = torch.empty(0)
        self._content: Tensor | None = None
        self.weight = 1.0  # of this process's losses

    def __call__(self, index: Tensor, rand: Tensor, content: Tensor | None = None) -> Tensor:
        """Takes one step and returns the loss (a device scalar, valid until the next step).

        `content` is that of `index`, where it was read ahead.
        """
        if not self._use_graph:
            return self._run(index, rand, content)
        if self._graph is None:
            if self._warm < _WARM_STEPS:
                return self._warm_step(index, rand, content)
            self._capture(index, rand, content)
        self._index.copy_(index)
        self._rand.copy_(rand)
        if content is not None:
            assert self._content is not None
            self._content.copy_(content)
        assert self._graph is not None
        self._graph.replay()
        return self._out

    def recapture(self) -> None:
        """Forgets the graph: the network or its optimiser have other tensors now."""
        self._graph, self._warm = None, 0

    def contents(self, order: Tensor) -> Iterable[Tensor | None]:
        """The content of every batch of `order`, read ahead; nothing where it is resident."""
        if self.task is None or self.task.inputs.resident:
            return repeat(None, len(order))
        return self.task.inputs.read(self.task.rows[order])

    def _run(self, index: Tensor, rand: Tensor, content: Tensor | None) -> Tensor:
        if content is not None:
            assert self.task is not None
            self.task.inputs.stage(index, content)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        with autocast(self.device):
            loss = self.loss(index, rand)
        if self.weight != 1.0:
            loss = loss * self.weight
        loss.backward()  # type: ignore[no-untyped-call]
        distributed.average_gradients(self.optimizers)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()

    def _warm_step(self, index: Tensor, rand: Tensor, content: Tensor | None) -> Tensor:
        self._warm += 1
        wait_until_ready()
        before = Inputs.map_reads
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out = self._run(index, rand, content)
        torch.cuda.current_stream().wait_stream(side)
        if Inputs.map_reads != before:  # the loss fetches samples from the host: no graph can
            self._use_graph = False
        return out

    def _capture(self, index: Tensor, rand: Tensor, content: Tensor | None) -> None:
        self._index, self._rand = index.clone(), rand.clone()
        self._content = None if content is None else content.clone()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._out = self._run(self._index, self._rand, self._content)


def train_epoch(step: TrainStep, order: Tensor, generator: torch.Generator) -> float:
    """Runs `order` (steps x batch indices) through `step`; returns the mean loss.

    Stops with the batch named when the loss leaves the finite numbers.
    """
    steps, batch = order.shape
    rand = torch.rand(steps, batch, step.randoms, generator=generator)
    rand = distributed.share(rand, 1).to(step.device)
    order = order.to(step.device)
    mine = distributed.share(order, 1)
    step.weight = distributed.share_weight(batch)
    losses = torch.zeros(steps, device=step.device)
    for i, content in enumerate(step.contents(mine)):
        losses[i] = step(mine[i], rand[i], content)
    distributed.average([losses])
    distributed.average_statistics(step.network)
    values = losses.cpu()
    if not bool(torch.isfinite(values).all()):
        first = int((~torch.isfinite(values)).nonzero()[0])
        named = ", ".join(str(int(v)) for v in order[first, :8])
        raise NumericalError(
            f"loss is {float(values[first])} at step {first} of {steps} (samples {named}, …); "
            "lower the learning rate (--set lr=…)"
        )
    return float(values.mean())


def shuffled(index: Tensor, batch: int, generator: torch.Generator) -> Tensor:
    """Every sample of `index` once, in random order, in full batches."""
    return batches_of(index[torch.randperm(len(index), generator=generator)], batch)


def drawn(index: Tensor, draws: int, batch: int, generator: torch.Generator) -> Tensor:
    """At least `draws` draws with replacement from `index`, in full batches."""
    steps = max(1, -(-draws // batch))
    pick = torch.randint(len(index), (steps, batch), generator=generator)
    return index[pick]


def weighted_draws(weights: Tensor, draws: int, batch: int, generator: torch.Generator) -> Tensor:
    """About `draws` indices with replacement, in proportion to `weights` (on the CPU)."""
    steps = max(1, -(-draws // batch))
    cumulative = weights.double().cumsum(0)
    at = torch.rand(steps * batch, generator=generator, dtype=torch.float64) * cumulative[-1]
    picked = torch.searchsorted(cumulative, at, right=True).clamp(max=len(weights) - 1)
    return picked.view(steps, batch)
