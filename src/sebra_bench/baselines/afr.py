"""Automatic feature reweighting: the last layer again, on held-out samples the first one misjudged.

Follows Qiu, Potapczynski, Izmailov and Wilson, "Simple and Fast Group Robustness by Automatic
Feature Reweighting" (ICML 2023): plain training on four fifths, then on the other fifth weights
exp(-gamma p_y), divided by the size of the class, and a penalty on leaving the first layer. It
departs in three things: a convex solver finds the minimum where the paper takes gradient steps,
the penalty is on weights over standardised embeddings, and the intercepts are free.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sebra.debiasing.choosing import even
from sebra.debiasing.last_layer import embedded, head_of, set_head, standardised_head
from sebra.engine.logistic import logistic_regression, logits_of
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.held_out import HeldOut, HeldOutConfig


@dataclass(frozen=True)
class AfrConfig(HeldOutConfig):
    """How samples are weighted, and how far the layer may go."""

    gamma: float = setting(4.0, "larger turns more to what the first layer gets wrong")
    penalty: float = setting(0.1, "larger keeps the last layer closer to the first one")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"gamma": self.gamma >= 0, "penalty": self.penalty > 0})


def misjudged(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """The weight of every sample: the surer the first layer is of its label, the less."""
    p = logits.float().softmax(1).gather(1, targets[:, None])[:, 0]
    weights = torch.exp(-gamma * p) * even(targets, 1.0).to(p.device)
    return weights / weights.sum()


class Afr(HeldOut[AfrConfig]):
    """Plain training, then a last layer weighted by its errors and pulled to what it was."""

    name = "afr"
    config_class = AfrConfig

    def refit(self, network: Network, held: Task, session: Session) -> None:
        x, mean, std = embedded(network, held)
        y = held.targets.to(x.device)
        first = standardised_head(*head_of(network), mean, std).to(x)
        weights = misjudged(logits_of(x, first), y, self.config.gamma)
        head = logistic_regression(x, y, held.classes, self.config.penalty, weights, first)
        set_head(network, head, mean, std)
