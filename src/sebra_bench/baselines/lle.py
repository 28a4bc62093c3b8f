"""Last-layer ensemble: one last layer per distribution shift, and a classifier that weighs them.

Follows Li, Evtimov, Gordo, Hazirbas, Hassner, Canton Ferrer, Xu and Ibrahim, "A Whac-A-Mole
Dilemma: Shortcuts Come in Multiples Where Mitigating One Amplifies Others" (CVPR 2023): each
training sample undergoes one shift or none, only the last layer of that shift learns from it, and a
classifier of the shifts, trained with it, gives the weights of the ensemble.

It departs in its augmentations: the paper's are made for the shortcuts of the data (cut-out
backgrounds, co-occurring objects, watermarks); here they are general (`shifts`): colour, blur,
erased patches and foreign surroundings of images; noise, dropped and swapped values of features;
hidden words of texts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import Help, Method, TrainConfig, every_sample, make_trainer
from sebra.engine.networks import EnsembleHead, Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check
from sebra_bench.baselines.shifts import RANDOMS, Shift, feature_shifts, image_shifts, text_shifts


@dataclass(frozen=True)
class LleConfig(TrainConfig):
    """The shifts."""

    strength: float = setting(0.5, "larger shifts pictures, features or texts further")

    def __post_init__(self) -> None:
        super().__post_init__()
        checks = {
            "batch": self.batch >= 8,  # every shift needs a sample in every batch
            "strength": 0 < self.strength < 1,
        }
        check(self, checks)


class Lle(Method[LleConfig]):
    """A network whose `head` is an `EnsembleHead`: a last layer for no shift and for each one."""

    name = "lle"
    config_class = LleConfig

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        cfg = self.config
        task = replace(task, augment=Augment(cfg.flip, cfg.crop))
        network = task.network(hidden=cfg.hidden)
        shifts = self.shifts(task, network)
        head = network.replace_head(heads=1 + len(shifts))
        assert isinstance(head, EnsembleHead)
        batch = min(cfg.batch, len(task))
        domains = domains_of(batch, 1 + len(shifts)).to(task.device)
        own = torch.arange(batch, device=task.device)
        used = task.randoms
        text = task.inputs.is_text

        def loss(index: Tensor, rand: Tensor) -> Tensor:
            x, y = task.batch(index, rand), task.targets[index]
            z = network.embed(shifted(x if text else x.float(), rand[:, used:], shifts))
            logits = head.each(z).float()[own, domains]
            told_apart = F.cross_entropy(head.domain(z).float(), domains)
            return F.cross_entropy(logits, y) + told_apart

        trainer = make_trainer(task, network, cfg, loss, randoms=used + RANDOMS)
        trainer.run(session, help.selector, lambda _: every_sample(task, cfg, trainer.generator))
        help.selector.restore(network)
        return network

    def shifts(self, task: Task, network: Network) -> list[Shift]:
        """What each last layer but the first stands for."""
        if task.inputs.is_image:
            return list(image_shifts(self.config.strength).values())
        generator = task.generator(offset=31)
        if task.inputs.is_text:
            length = task.inputs.shape[1]
            shifts = text_shifts(self.config.strength, length, generator, task.device)
            return list(shifts.values())
        return list(feature_shifts(self.config.strength, network, generator).values())


def domains_of(batch: int, count: int) -> Tensor:
    """The shift of each place in a batch: blocks of equal size, none first.

    Which sample lands on which place is random, so a fixed plan keeps shapes fixed and every shift
    equally frequent.
    """
    return torch.arange(batch) * count // batch


def shifted(x: Tensor, rand: Tensor, shifts: list[Shift]) -> Tensor:
    """Applies each shift to its block of the batch (`domains_of`)."""
    domains = domains_of(len(x), 1 + len(shifts))
    ends = [0, *torch.bincount(domains, minlength=1 + len(shifts)).cumsum(0).tolist()]
    parts = [x[: ends[1]]]
    for k, shift in enumerate(shifts, start=1):
        block = slice(ends[k], ends[k + 1])
        parts.append(shift(x[block], rand[block]))
    return torch.cat(parts)
