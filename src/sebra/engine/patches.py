"""Patch features: an overview of a picture and what each part of it looks like.

The penultimate features of a network are averaged over the picture and made to tell objects apart;
of a small thing beside the object little is left in them. The map of an earlier stage, averaged
over a grid of cells, still has it, with its place. Rankers over frozen pictures look at both: the
strongest directions of the penultimate features and of every cell. The directions are found from
some training pictures, without labels, so every split is seen in the same way.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sebra.engine.folding import Folded, FoldedConv, folded_copy
from sebra.engine.networks import Network
from sebra.loading.inputs import Inputs

GRID = 5  # cells along each side
CHANNELS = 32  # directions kept of the channels of a cell
OVERVIEW = 128  # directions kept of the penultimate features
PROBES = 512  # pictures that the directions are found from
VERSION = 1  # raise it when the same pictures would give other directions
_REDUCTION = 16  # pixels per cell of the map, along a side
_TOLERANCE = 0.05
_FEWEST = 4  # samples per direction
_EPSILON = 1e-6

Body = Callable[[Tensor], Tensor]


class Tap:
    """A body in evaluation mode that also gives the cells of the map on the way."""

    def __init__(self, body: Body, module: nn.Module) -> None:
        self._body = body
        self._cells: Tensor | None = None
        module.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, output: Any) -> None:
        # Averaged at once: a later layer may write into the map.
        size = min(GRID, *output.shape[2:])
        self._cells = F.adaptive_avg_pool2d(output.float(), size)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The penultimate features, and cells as n x channels x side x side."""
        z = self._body(x)
        assert self._cells is not None
        cells, self._cells = self._cells, None
        return z, cells


@torch.no_grad()
def tap_of(network: Network, inputs: Inputs) -> Tap | None:
    """The tap of a network of pictures; None where its body has no such map."""
    name = _middle_stage(network.body) if network.is_image else None
    if name is None:
        return None
    network.eval()
    probe = inputs.batch(torch.arange(min(2, len(inputs)), device=inputs.device))
    stage = network.body.get_submodule(name)
    shapes: list[tuple[int, ...]] = []
    hook = stage.register_forward_hook(lambda m, i, out: shapes.append(tuple(out.shape)))
    network.embed(probe)
    hook.remove()
    if len(shapes) != 1 or len(shapes[0]) != 4 or min(shapes[0][2:]) < 2:
        return None
    plain = Tap(network.embed, stage)
    folded = folded_copy(network.body, network.shift, network.scale, probe)
    inside = None if folded is None else _folded_end(folded, stage)
    if folded is None or inside is None:
        return plain
    quick = Tap(folded, inside)
    expected, found = plain(probe)[1], quick(probe)[1]
    same = found.shape == expected.shape and bool(
        (found - expected).norm() <= _TOLERANCE * expected.norm()
    )
    return quick if same else plain


def _middle_stage(body: nn.Module) -> str | None:
    """The last stage before the last halving of the map, by timm's own account of a model."""
    info: Any = getattr(body, "feature_info", None)
    try:
        stages = [(str(e["module"]), int(e["reduction"])) for e in info]
    except (TypeError, KeyError):
        return None
    found = [name for name, reduction in stages if reduction == _REDUCTION]
    deeper = any(reduction > _REDUCTION for _, reduction in stages)
    return found[-1] if found and deeper else None


def _folded_end(folded: Folded, stage: nn.Module) -> FoldedConv | None:
    convs = [m for m in stage.modules() if isinstance(m, nn.Conv2d)]
    ends = [c for c in folded.convs if convs and c.source is convs[-1]]
    return ends[0] if ends else None


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
    """How patch features are made from penultimate features and cells."""

    overview: Directions
    channels: Directions
    side: int

    @property
    def width(self) -> int:
        return self.overview.axes.shape[1] + self.side**2 * self.channels.axes.shape[1]

    def __call__(self, z: Tensor, cells: Tensor) -> Tensor:
        parts = self.channels(cells.permute(0, 2, 3, 1)).flatten(1)
        return torch.cat([self.overview(z.float()), parts], dim=1)

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


def width_of(tap: Tap, inputs: Inputs) -> int:
    """How many patch features pictures of `inputs` get when they give the basis themselves."""
    z, cells = tap(inputs.batch(torch.arange(1, device=inputs.device)))
    probes, side = min(PROBES, len(inputs)), cells.shape[-1]
    return _kept(OVERVIEW, z.shape[1], probes) + side**2 * _kept(
        CHANNELS, cells.shape[1], probes * side**2
    )


def _kept(most: int, width: int, samples: int) -> int:
    return max(1, min(most, width, samples // _FEWEST))


@dataclass(frozen=True)
class Probe:
    """Some pictures as a tap sees them."""

    rows: Tensor
    z: Tensor
    cells: Tensor

    def basis(self) -> Basis:
        """The directions of these pictures."""
        channels = self.cells.permute(0, 2, 3, 1).reshape(-1, self.cells.shape[1])
        overview = Directions.of(self.z, OVERVIEW)
        return Basis(overview, Directions.of(channels, CHANNELS), self.cells.shape[-1])


@torch.no_grad()
def probe_of(tap: Tap, inputs: Inputs, batch: int) -> Probe:
    """Evenly spaced pictures of `inputs`."""
    chosen = np.linspace(0, len(inputs) - 1, min(PROBES, len(inputs))).round().astype(np.int64)
    rows = torch.from_numpy(chosen).to(inputs.device)
    seen = [tap(inputs.batch(part)) for part in torch.split(rows, batch)]
    return Probe(rows, torch.cat([z.float() for z, _ in seen]), torch.cat([c for _, c in seen]))
