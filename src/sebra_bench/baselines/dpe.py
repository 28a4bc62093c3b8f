"""Diverse prototypical ensembles: many classifiers by distance, each unlike those before it.

Follows To, Wilson, Nguyen, Harmanani, Cooper, Fooladgar, Abolmaesumi, Mousavi and Krishnan,
"Diverse Prototypical Ensembles Improve Robustness to Subpopulation Shift" (ICML 2025), without
labels of groups: plain training, then members with a prototype per class, each fitted to its own
class-balanced draw of held-out embeddings. Likeness between the prototypes of a class costs.
Predictions are the mean of the members' probabilities. Chosen here: all members are fitted at
once, the likeness is the mean absolute cosine, each member has a learned scale of its distances,
and all take a fixed number of Adam steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.engine.networks import Network, PrototypeHead
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.held_out import HeldOut, HeldOutConfig

_MEMBERS = 15  # as published
_STEPS, _RATE = 150, 0.02
_SCALE = 5.0  # of the distances, at first


@dataclass(frozen=True)
class DpeConfig(HeldOutConfig):
    """The members."""

    diversity: float = setting(1.0, "larger makes members less alike")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"diversity": self.diversity >= 0})


class Dpe(HeldOut[DpeConfig]):
    """A network whose `head` is a `PrototypeHead`."""

    name = "dpe"
    config_class = DpeConfig

    def refit(self, network: Network, held: Task, session: Session) -> None:
        with evaluating(network):
            z = predict(network.embed, held, torch.arange(len(held))).float()
        generator = held.generator(offset=91)
        rows = torch.stack([class_balanced(held.targets, generator) for _ in range(_MEMBERS)])
        start = torch.randn(_MEMBERS, held.classes, z.shape[1], generator=generator)
        prototypes = start.to(z.device).requires_grad_()
        scales = torch.full((_MEMBERS,), _SCALE, device=z.device).log().requires_grad_()
        optimizer = torch.optim.Adam([prototypes, scales], lr=_RATE)
        x, y = z[rows], held.targets[rows]
        for _ in range(_STEPS):
            logits = -scales.exp()[:, None, None] * member_distances(x, prototypes)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss = loss + self.config.diversity * likeness(prototypes)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        head = network.replace_head(prototypes=_MEMBERS)
        assert isinstance(head, PrototypeHead)
        with torch.no_grad():
            head.prototypes.copy_(prototypes)
            head.scales.copy_(scales.exp())


def member_distances(x: Tensor, prototypes: Tensor) -> Tensor:
    """From each member's samples (m x n x d) to its prototypes, of length 1: m x n x classes."""
    near = torch.einsum("mnd,mcd->mnc", F.normalize(x, dim=-1), F.normalize(prototypes, dim=-1))
    return (2 - 2 * near).clamp_min(1e-6).sqrt()


def likeness(prototypes: Tensor) -> Tensor:
    """Mean absolute cosine between prototypes of a class of different members."""
    p = F.normalize(prototypes, dim=-1)
    alike = torch.einsum("mcd,ncd->mnc", p, p).abs().mean(2)
    members = len(p)
    return (alike.sum() - alike.diagonal().sum()) / (members * (members - 1))


def class_balanced(targets: Tensor, generator: torch.Generator) -> Tensor:
    """Positions of as many samples of every class as the smallest has, drawn anew each time."""
    y = targets.cpu()
    fewest = int(torch.bincount(y)[y.unique()].min())  # type: ignore[no-untyped-call]
    picked = []
    for c in y.unique().tolist():  # type: ignore[no-untyped-call]
        members = (y == c).nonzero().flatten()
        picked.append(members[torch.randint(len(members), (fewest,), generator=generator)])
    return torch.cat(picked).to(targets.device)
