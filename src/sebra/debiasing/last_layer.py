"""The last layer as a regression over what the rest of a network sees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sebra.engine.logistic import logistic_regression
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task
from sebra.errors import UsageError

_PROBE_C = 0.1  # inverse penalty of a probe's squared weights
_CONSTANT = 1e-6  # of a column's size: what varies less says nothing


def embedded(network: Network, *tasks: Task) -> tuple[Tensor, Tensor, Tensor]:
    """Standardised embeddings of the tasks' samples, and their mean and deviation on the CPU."""
    with evaluating(network):
        parts = [predict(network.embed, task, torch.arange(len(task))) for task in tasks]
    z = torch.cat(parts)
    std, mean = torch.std_mean(z, dim=0, correction=0)
    std = torch.where(std > _CONSTANT * z.abs().amax(0), std, torch.ones_like(std))
    return (z - mean) / std, mean.cpu(), std.cpu()


def set_head(network: Network, head: Tensor, mean: Tensor, std: Tensor) -> None:
    """Puts a head over standardised embeddings into the layer, which sees raw ones."""
    layer = network.head
    assert isinstance(layer, nn.Linear)
    weight = (head[:-1].cpu() / std[:, None]).T
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(head[-1].cpu() - weight @ mean)


def head_of(network: Network) -> tuple[Tensor, Tensor]:
    """Weight and bias of the last layer, which sees raw embeddings."""
    layer = network.head
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach().cpu().float(), layer.bias.detach().cpu().float()


def standardised_head(weight: Tensor, bias: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """The same layer over standardised embeddings: d + 1 x classes."""
    return torch.cat([(weight * std).T, (bias + weight @ mean)[None]])


def set_probe(network: Network, task: Task) -> None:
    """The last layer that tells the classes best by what the network sees as it is now.

    Fine-tuning from there bends what was learned elsewhere less than from a layer that knows
    nothing (Kumar et al., "Fine-Tuning can Distort Pretrained Features", ICLR 2022).
    """
    if not isinstance(network.head, nn.Linear):
        raise UsageError("--set start=probe: this method has several last layers; leave it out")
    x, mean, std = embedded(network, task)
    penalty = 1.0 / (_PROBE_C * len(x))
    set_head(network, logistic_regression(x, task.targets, task.classes, penalty), mean, std)


def set_random(network: Network, task: Task) -> None:
    """The last layer as PyTorch begins it, by the task's seed: how the published code starts."""
    generator = task.generator(29)
    for parameter in network.head.parameters():
        values = torch.rand(parameter.shape, generator=generator) * 2 - 1
        parameter.data.copy_(values / network.width**0.5)
