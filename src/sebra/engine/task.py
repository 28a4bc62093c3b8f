"""What a ranker or a debiasing method gets to see: no attributes, no file names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sebra.engine.networks import Network
from sebra.engine.views import View
from sebra.loading.augment import Augment
from sebra.loading.inputs import Inputs
from sebra.samples.table import FeatureArray

_BLOCK = 8192


@dataclass(frozen=True)
class Task:
    """Training data on the device and a way to build networks for it.

    `rows[i]` is the row of `inputs` that holds sample `i`; every index a method handles is a
    position in `targets`, from 0 to `len(task) - 1`. core: how many columns of features may be
    enough by themselves (the penultimate ones, before patch features); 0: all belong together.
    figures: plain ones of every row of `inputs`, which only `views` look at.
    """

    inputs: Inputs
    rows: Tensor
    targets: Tensor
    classes: int
    build: Callable[[int, int], Network]  # (seed, hidden) -> network on the device
    device: torch.device
    seed: int
    augment: Augment = field(default_factory=Augment)
    core: int = 0
    figures: Tensor | None = None
    views: tuple[View, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def over_features(self) -> bool:
        """Whether samples are fixed features, so that a last layer is all there is to train."""
        return not (self.inputs.is_image or self.inputs.is_text)

    @property
    def randoms(self) -> int:
        """Uniform numbers per sample that `batch` needs to augment."""
        return self.augment.randoms if self.inputs.is_image else 0

    def batch(self, index: Tensor, rand: Tensor | None = None) -> Tensor:
        """The content of samples `index`, augmented when random numbers are given."""
        x = self.inputs.staged(index)
        if x is None:
            x = self.inputs.batch(self.rows[index])
        if rand is not None and self.randoms:
            x = self.augment(x, rand)
        return x

    def seen(self, index: Tensor) -> Tensor:
        """The features of samples `index` and after them their figures: what views are parts of."""
        x = self.batch(index).float()
        if self.figures is None:
            return x
        return torch.cat([x, self.figures[self.rows[index]].to(x)], 1)

    def through(self, view: View) -> Task:
        """The same task with the columns of a view as its features."""
        columns = torch.tensor(view.columns, device=self.device)
        everyone = torch.arange(len(self), device=self.device)
        parts = [self.seen(part)[:, columns].cpu() for part in torch.split(everyone, _BLOCK)]
        rows = np.arange(len(self), dtype=np.int64)
        inputs = Inputs(FeatureArray(torch.cat(parts).numpy(), rows), self.device)
        return replace(self, inputs=inputs, rows=everyone, figures=None, views=())

    def network(self, offset: int = 0, hidden: int = 0) -> Network:
        """A fresh network; another `offset` gives another initialisation.

        `hidden` is the width of a hidden layer over frozen features; image networks ignore it.
        """
        return self.build(self.seed * 1009 + offset, hidden)

    def generator(self, offset: int = 0) -> torch.Generator:
        """Random numbers for draws. Always on the CPU: the same draws whatever the device."""
        generator = torch.Generator()
        generator.manual_seed(self.seed * 7919 + offset)
        return generator

    def subset(self, index: Tensor) -> Task:
        """The same task on these samples only."""
        return replace(self, rows=self.rows[index], targets=self.targets[index])
