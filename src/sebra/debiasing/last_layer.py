"""The last layer as a regression over what the rest of a network sees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sebra.debiasing.logistic import logistic_regression
from sebra.engine.networks import Network
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task
from sebra.errors import UsageError

_PROBE_C = 0.1  # inverse penalty of a probe's squared weights


def embedded(network: Network, task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """Standardised embeddings of a task's samples with their mean and deviation, on the CPU."""
    with evaluating(network):
        z = predict(network.embed, task, torch.arange(len(task))).cpu()
    mean, std = z.mean(0), z.std(0).clamp_min(1e-6)
    return (z - mean) / std, mean, std


def set_last_layer(
    network: Network, weight: Tensor, bias: Tensor, mean: Tensor, std: Tensor
) -> None:
    """Puts a regression over standardised embeddings into the layer, which sees raw ones."""
    head = network.head
    assert isinstance(head, nn.Linear)
    weight = weight / std
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias - weight @ mean)


def set_probe(network: Network, task: Task) -> None:
    """The last layer that tells the classes best by what the network sees as it is now.

    Fine-tuning from there bends what was learned elsewhere less than from a layer that knows
    nothing (Kumar et al., "Fine-Tuning can Distort Pretrained Features", ICLR 2022).
    """
    if not isinstance(network.head, nn.Linear):
        raise UsageError("--set start=probe: this method has several last layers")
    x, mean, std = embedded(network, task)
    fit = logistic_regression(x, task.targets, task.classes, _PROBE_C, l1=False)
    set_last_layer(network, *fit, mean, std)
