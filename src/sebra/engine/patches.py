"""Patch features: an overview of a picture and what each part of it looks like.

The penultimate features of a network are averaged over the picture and made to tell objects apart;
of a small thing beside the object little is left in them. The map of an earlier stage, averaged
over a grid of cells, still has it, with its place. Rankers over frozen pictures look at both: the
strongest directions of the penultimate features and of every cell. The directions are found from
some training pictures, without labels, so every split is seen in the same way. Last layers look at
finer cells: at directions that come after those, too.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sebra.engine.networks import Network

GRID = 5  # cells along each side
CHANNELS = 32  # directions of the channels of a cell for rankers
FINER = 64  # for last layers
OVERVIEW = 128  # directions kept of the penultimate features
PROBES = 512  # pictures that the directions are found from
VERSION = 3  # raise it when the same pictures would give other directions
_REDUCTION = 16  # pixels per cell of the map, along a side
_FEWEST = 4  # samples per direction
_EPSILON = 1e-6


class View(nn.Module):
    """Raw pictures to rows: the penultimate features, then the cells of a map on the way.

    cells: channels and side of the grid of cells; (0, 0) where there are none.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.cells = (0, 0)
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
            self.cells = maps[0].shape[1], min(GRID, *maps[0].shape[2:])

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_cells or self._stage is None:
            return self.network.embed(x).float()
        side, kept = self.cells[1], list[Tensor]()
        hook = self._stage.register_forward_hook(
            # Averaged at once: a later layer may write into the map.
            lambda m, i, out: kept.append(F.adaptive_avg_pool2d(out.float(), side))
        )
        try:
            z = self.network.embed(x)
        finally:
            hook.remove()
        return torch.cat([z.float(), kept[0].flatten(1)], dim=1)

    @property
    def has_cells(self) -> bool:
        return any(self.cells)

    def parts(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The penultimate features, and cells (n x channels x side x side) if there are any."""
        if not self.has_cells:
            return (rows,)
        channels, side = self.cells
        z, cells = rows.tensor_split([self.network.width], dim=1)
        return z, cells.reshape(len(rows), channels, side, side)

    def width_after(self, basis: Basis | None, pictures: int) -> int:
        """How many patch features there will be; without a basis, from so many pictures' own."""
        channels, side = self.cells
        if basis is not None or not self.has_cells:
            return 0 if basis is None else basis.width
        probes = min(PROBES, pictures)
        overview = _kept(OVERVIEW, self.network.width, probes)
        return overview + side**2 * _kept(FINER, channels, probes * side**2)


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
    """How patch features are made from penultimate features and cells.

    The overview comes first, then what rankers see of every cell, then what only last layers see.
    """

    overview: Directions
    channels: Directions
    side: int

    @property
    def width(self) -> int:
        return self.overview.axes.shape[1] + self.side**2 * sum(self.cut)

    @property
    def cut(self) -> tuple[int, int]:
        """Directions of a cell that rankers see, and that only last layers see."""
        kept = self.channels.axes.shape[1]
        return min(CHANNELS, kept), max(0, kept - CHANNELS)

    @property
    def ranked(self) -> int:
        """How many of the columns rankers see."""
        return self.overview.axes.shape[1] + self.side**2 * self.cut[0]

    def __call__(self, z: Tensor, cells: Tensor) -> Tensor:
        parts = torch.split(self.channels(cells.permute(0, 2, 3, 1)), list(self.cut), dim=-1)
        return torch.cat([self.overview(z.float()), *(p.flatten(1) for p in parts)], dim=1)

    @staticmethod
    def of(z: Tensor, cells: Tensor) -> Basis:
        """The directions of these pictures."""
        channels = cells.permute(0, 2, 3, 1).reshape(-1, cells.shape[1])
        overview = Directions.of(z, OVERVIEW)
        return Basis(overview, Directions.of(channels, FINER), cells.shape[-1])

    def to(self, device: torch.device) -> Basis:
        return Basis(self.overview.to(device), self.channels.to(device), self.side)

    def to_text(self) -> str:
        """The basis as text, its shapes first."""
        parts = [self.overview, self.channels]
        head = np.array([self.side, *(n for d in parts for n in d.axes.shape)], dtype=np.float32)
        flat = [t.flatten().cpu() for d in parts for t in (d.shift, d.scale, d.axes)]
        return base64.b64encode(head.tobytes() + torch.cat(flat).numpy().tobytes()).decode()

    @staticmethod
    def from_text(text: str) -> Basis:
        """What `to_text` made a text of."""
        row = np.frombuffer(base64.b64decode(text), dtype=np.float32)
        side, *shape = (int(n) for n in row[:5])
        rest = torch.from_numpy(row[5:].copy())
        found = []
        for d, k in (shape[:2], shape[2:]):
            end = 2 * d + d * k
            found.append(Directions(rest[:d], rest[d : 2 * d], rest[2 * d : end].view(d, k)))
            rest = rest[end:]
        return Basis(found[0], found[1], side)
