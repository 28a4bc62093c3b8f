"""One training step and one pass over samples: the two things every method repeats.

Batch shapes never change, so that cuDNN tunes once and a CUDA graph can be replayed; nothing here
waits for the device inside an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sebra.engine.device import autocast
from sebra.engine.task import Task
from sebra.errors import NumericalError

Loss = Callable[[Tensor, Tensor], Tensor]  # (index, rand) -> scalar loss
_WARM_STEPS = 3


def make_optimizer(
    network: nn.Module,
    name: str,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """SGD, Adam or AdamW, fused where the device has it; the rate is a tensor on CUDA."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    cuda = parameters[0].is_cuda
    rate: float | Tensor = torch.tensor(lr, device=parameters[0].device) if cuda else lr
    if name == "sgd":
        return torch.optim.SGD(
            parameters, lr=rate, momentum=momentum, weight_decay=weight_decay, fused=cuda or None
        )
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    made: torch.optim.Optimizer = kind(
        parameters, lr=rate, weight_decay=weight_decay, fused=cuda or None, capturable=cuda
    )
    return made


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Changes the learning rate in place, also under a captured graph."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


class TrainStep:
    """Forward, backward, update for one batch of sample indices.

    `loss(index, rand)` computes the scalar to minimise. `randoms` is how many uniform numbers per
    sample it wants. On CUDA the step is captured into a graph after a few plain steps, so anything
    `loss` reads must be a tensor that is updated in place.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        loss: Loss,
        device: torch.device,
        randoms: int = 0,
        graph: bool = True,
    ) -> None:
        self.network = network
        self.optimizers = (
            [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        )
        self.loss = loss
        self.device = device
        self.randoms = randoms
        capturable = getattr(network, "capturable", True)
        self._use_graph = graph and capturable and device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = 0
        self._index = self._rand = self._out = torch.empty(0)

    def __call__(self, index: Tensor, rand: Tensor) -> Tensor:
        """Takes one step and returns the loss (a device scalar, valid until the next step)."""
        if not self._use_graph:
            return self._run(index, rand)
        if self._graph is None:
            if self._warm < _WARM_STEPS:
                return self._warm_step(index, rand)
            self._capture(index, rand)
        self._index.copy_(index)
        self._rand.copy_(rand)
        assert self._graph is not None
        self._graph.replay()
        return self._out

    def _run(self, index: Tensor, rand: Tensor) -> Tensor:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        with autocast(self.device):
            loss = self.loss(index, rand)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()

    def _warm_step(self, index: Tensor, rand: Tensor) -> Tensor:
        self._warm += 1
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out = self._run(index, rand)
        torch.cuda.current_stream().wait_stream(side)
        return out

    def _capture(self, index: Tensor, rand: Tensor) -> None:
        self._index, self._rand = index.clone(), rand.clone()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._out = self._run(self._index, self._rand)


def train_epoch(
    step: TrainStep,
    order: Tensor,
    generator: torch.Generator,
    on_step: Callable[[int], None] | None = None,
) -> float:
    """Runs `order` (steps x batch indices) through `step`; returns the mean loss.

    Stops with the batch named when the loss leaves the finite numbers.
    """
    steps, batch = order.shape
    rand = torch.rand(steps, batch, step.randoms, generator=generator).to(step.device)
    order = order.to(step.device)
    losses = torch.zeros(steps, device=step.device)
    for i in range(steps):
        if on_step is not None:
            on_step(i)
        losses[i] = step(order[i], rand[i])
    values = losses.cpu()
    if not bool(torch.isfinite(values).all()):
        first = int((~torch.isfinite(values)).nonzero()[0])
        named = ", ".join(str(int(v)) for v in order[first, :8])
        raise NumericalError(
            f"loss is {float(values[first])} at step {first} of {steps} (samples {named}, …); "
            "lower the learning rate (--set lr=…)"
        )
    return float(values.mean())


def batches_of(index: Tensor, batch: int) -> Tensor:
    """Cuts `index` into full batches, filling the last one from the front so the shape is fixed."""
    count = len(index)
    steps = max(1, -(-count // batch))
    fill = steps * batch - count
    if fill:
        index = torch.cat([index, index[torch.arange(fill) % count]])
    return index.view(steps, batch)


def shuffled(index: Tensor, batch: int, generator: torch.Generator) -> Tensor:
    """Every sample of `index` once, in random order, in full batches."""
    return batches_of(index[torch.randperm(len(index), generator=generator)], batch)


def drawn(index: Tensor, draws: int, batch: int, generator: torch.Generator) -> Tensor:
    """At least `draws` draws with replacement from `index`, in full batches."""
    steps = max(1, -(-draws // batch))
    pick = torch.randint(len(index), (steps, batch), generator=generator)
    return index[pick]


@torch.no_grad()
def predict(
    network: Callable[[Tensor], Tensor], task: Task, index: Tensor, batch: int = 512
) -> Tensor:
    """Outputs of `network` for samples `index`, float32 on the device, in fixed batches."""
    if len(index) == 0:
        probe = network(task.batch(torch.zeros(2, dtype=torch.long, device=task.device)))
        return probe.new_zeros((0, *probe.shape[1:])).float()
    batch = min(batch, len(index)) if task.device.type == "cpu" else batch
    out: list[Tensor] = []
    for rows in batches_of(index.cpu(), batch).to(task.device):
        with autocast(task.device):
            out.append(network(task.batch(rows)).float())
    return torch.cat(out)[: len(index)]


class evaluating:
    """Puts a network into evaluation mode for a block."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.was = network.training

    def __enter__(self) -> nn.Module:
        self.was = self.network.training
        self.network.eval()
        return self.network

    def __exit__(self, *exc: object) -> None:
        self.network.train(self.was)


def label_probability(network: nn.Module, task: Task, index: Tensor, batch: int = 512) -> Tensor:
    """p_y: the probability that the network gives to the label, in evaluation mode."""
    with evaluating(network):
        logits = predict(network, task, index, batch)
    probs = logits.softmax(1)
    return probs.gather(1, task.targets[index.to(task.device)][:, None]).squeeze(1)
