"""Patch features: an overview of a picture and what each part of it looks like.

The penultimate features of a network are averaged over the picture and made to tell objects apart;
of a small thing beside the object little is left in them. The map of an earlier stage, averaged
over a grid of cells, still has it, with its place. Rankers over frozen pictures look at both: the
strongest directions of the penultimate features and of every cell. The directions are found from
some training pictures, without labels, so every split is seen in the same way. Last layers look at
a finer grid, and at more directions of its cells.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sebra.engine.networks import Network

GRID, FINER_GRID = 5, 7  # cells along each side for rankers, and for last layers
CHANNELS, FINER_CHANNELS = 32, 64  # directions of the channels of such cells
OVERVIEW = 128  # directions kept of the penultimate features
PROBES = 512  # pictures that the directions are found from
VERSION = 4  # raise it when the same pictures would give other directions
_REDUCTION = 16  # pixels per cell of the map, along a side
_FEWEST = 4  # samples per direction
_EPSILON = 1e-6


class View(nn.Module):
    """Raw pictures to rows: the penultimate features, then the cells of a map on the way, twice.

    cells: channels and the sides of both grids of cells; zeros where there are none.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.cells = (0, 0, 0)
        self._stage: nn.Module | None = None

    @torch.no_grad()
    def look(self, probe: Tensor) -> None:
        """From here on cells are given as well, if the network has a map for them."""
        name = middle_stage(self.network.body) if self.network.is_image else None
        if name is None:
            return
        maps: list[Tensor] = []
        self._stage = self.network.body.get_submodule(name)
        hook = self._stage.register_forward_hook(lambda m, i, out: maps.append(out))
        self.network.eval().embed(probe)
        hook.remove()
        if len(maps) == 1 and maps[0].dim() == 4 and min(maps[0].shape[2:]) > 1:
            least = min(maps[0].shape[2:])
            self.cells = maps[0].shape[1], min(GRID, least), min(FINER_GRID, least)

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_cells or self._stage is None:
            return self.network.embed(x).float()
        kept = list[Tensor]()

        def keep(module: nn.Module, given: Any, out: Tensor) -> None:
            # Averaged at once: a later layer may write into the map.
            kept.extend(F.adaptive_avg_pool2d(out.float(), side) for side in self.cells[1:])

        hook = self._stage.register_forward_hook(keep)
        try:
            z = self.network.embed(x)
        finally:
            hook.remove()
        return torch.cat([z.float(), *(cells.flatten(1) for cells in kept)], dim=1)

    @property
    def has_cells(self) -> bool:
        return any(self.cells)

    def parts(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The penultimate features, and both grids of cells (n x channels x side x side) if any."""
        if not self.has_cells:
            return (rows,)
        channels, *sides = self.cells
        widths = [self.network.width, *(channels * side**2 for side in sides)]
        z, *grids = torch.split(rows, widths, dim=1)
        shaped = zip(grids, sides, strict=True)
        return z, *(cells.reshape(len(rows), channels, side, side) for cells, side in shaped)

    def columns(self, basis: Basis | None, pictures: int) -> int:
        """Of a row of features; without a basis, of those that so many pictures would give."""
        channels, side, finer = self.cells
        if basis is not None or not self.has_cells:
            return self.network.width + (basis.ranked + basis.finest if basis else 0)
        probes = min(PROBES, pictures)
        kept = _kept(FINER_CHANNELS, channels, probes * side**2)
        overview = _kept(OVERVIEW, self.network.width, probes)
        return overview + side**2 * min(CHANNELS, kept) + self.network.width + finer**2 * kept


def middle_stage(body: nn.Module) -> str | None:
    """The last stage before the last halving of the map, by timm's own account of a model."""
    info: Any = getattr(body, "feature_info", None)
    try:
        stages = [(str(e["module"]), int(e["reduction"])) for e in info]
    except (TypeError, KeyError):
        return None
    found = [name for name, reduction in stages if reduction == _REDUCTION]
    deeper = any(reduction > _REDUCTION for _, reduction in stages)
    return found[-1] if found and deeper else None


def _kept(most: int, width: int, samples: int) -> int:
    return max(1, min(most, width, samples // _FEWEST))


@dataclass(frozen=True)
class Directions:
    """Mean, scale and principal directions of some features."""

    shift: Tensor
    scale: Tensor
    axes: Tensor  # d x k

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = ((x - self.shift) * self.scale) @ self.axes
        return out

    @staticmethod
    def of(x: Tensor, most: int) -> Directions:
        """The strongest directions of standardised features; fewer where there is little data."""
        x = x.double().cpu()
        shift = x.mean(0)
        scale = 1 / x.std(0, correction=0).clamp_min(_EPSILON)
        z = (x - shift) * scale
        kept = _kept(most, x.shape[1], len(x))
        axes = torch.linalg.eigh(z.T @ z / len(z))[1].flip(1)[:, :kept]
        # An eigenvector is known up to its sign.
        largest = axes.abs().argmax(0)
        axes = axes * axes[largest, torch.arange(kept)].sign()
        return Directions(shift.float(), scale.float(), axes.float().contiguous())

    def to(self, device: torch.device) -> Directions:
        return Directions(self.shift.to(device), self.scale.to(device), self.axes.to(device))


@dataclass(frozen=True)
class Basis:
    """How features are made from penultimate features and cells.

    What rankers see comes first: the overview and cells of a coarse grid. Last layers see what is
    behind it: the penultimate features and cells of the finer grid. side, finer: of the grids.
    """

    overview: Directions
    channels: Directions
    side: int
    finer: int

    @property
    def few(self) -> int:
        """Directions of a cell that rankers see."""
        return min(CHANNELS, self.channels.axes.shape[1])

    @property
    def ranked(self) -> int:
        """How many of the columns rankers see."""
        return self.overview.axes.shape[1] + self.side**2 * self.few

    @property
    def finest(self) -> int:
        """How many columns are of the finer grid."""
        return self.finer**2 * self.channels.axes.shape[1]

    def __call__(self, z: Tensor, cells: Tensor, finer: Tensor) -> Tensor:
        coarse, fine = (self.channels(x.permute(0, 2, 3, 1)) for x in (cells, finer))
        ranked = [self.overview(z.float()), coarse[..., : self.few].flatten(1)]
        return torch.cat([*ranked, z, fine.flatten(1)], dim=1)

    @staticmethod
    def of(z: Tensor, cells: Tensor, finer: Tensor) -> Basis:
        """The directions of these pictures."""
        channels = cells.permute(0, 2, 3, 1).reshape(-1, cells.shape[1])
        found = Directions.of(z, OVERVIEW), Directions.of(channels, FINER_CHANNELS)
        return Basis(*found, cells.shape[-1], finer.shape[-1])

    def to(self, device: torch.device) -> Basis:
        return replace(self, overview=self.overview.to(device), channels=self.channels.to(device))

    def to_text(self) -> str:
        """The basis as text, its shapes first."""
        parts = [self.overview, self.channels]
        shapes = (n for d in parts for n in d.axes.shape)
        head = np.array([self.side, self.finer, *shapes], dtype=np.float32)
        flat = [t.flatten().cpu() for d in parts for t in (d.shift, d.scale, d.axes)]
        return base64.b64encode(head.tobytes() + torch.cat(flat).numpy().tobytes()).decode()

    @staticmethod
    def from_text(text: str) -> Basis:
        """What `to_text` made a text of."""
        row = np.frombuffer(base64.b64decode(text), dtype=np.float32)
        side, finer, *shape = (int(n) for n in row[:6])
        rest = torch.from_numpy(row[6:].copy())
        found = []
        for d, k in (shape[:2], shape[2:]):
            end = 2 * d + d * k
            found.append(Directions(rest[:d], rest[d : 2 * d], rest[2 * d : end].view(d, k)))
            rest = rest[end:]
        return Basis(found[0], found[1], side, finer)
