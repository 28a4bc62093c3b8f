"""A body whose features are the penultimate ones and the cells of a map on the way.

Patch features are linear in those, so a linear head over patch features is one over this body: that
is how a model that was trained on patch features is kept.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sebra.engine.networks import LINEAR, Network, NetworkSpec
from sebra.engine.patches import Basis, Directions, middle_stage


class Celled(nn.Module):
    """The features of a body, then the map of its middle stage averaged over a grid of cells."""

    def __init__(self, body: nn.Module, width: int, side: int) -> None:
        super().__init__()
        name = middle_stage(body)
        info: Any = getattr(body, "feature_info", None)
        if name is None:
            raise ValueError("a network without a map for cells")
        self.body, self.side = body, side
        self.width = width + side**2 * next(int(e["num_chs"]) for e in info if e["module"] == name)
        self._map: list[Tensor] = []
        body.get_submodule(name).register_forward_hook(lambda m, i, out: self._map.append(out))

    def forward(self, x: Tensor) -> Tensor:
        self._map.clear()
        z = self.body(x)
        seen = self._map.pop().float()
        down, across = (_averages(n, self.side).to(seen) for n in seen.shape[2:])
        return torch.cat([z.float(), (down @ seen @ across.T).flatten(1)], dim=1)


def _averages(n: int, side: int) -> Tensor:
    """What averages n places to `side` cells, as `adaptive_avg_pool2d` does (side x n)."""
    return F.adaptive_avg_pool1d(torch.eye(n)[None], side)[0].T


def over_cells(network: Network, width: int, basis: Basis) -> Network:
    """The linear network over `width` penultimate and then patch features, over cells instead."""
    layer = network.head
    assert isinstance(layer, nn.Linear)
    assert network.spec.hidden == 0
    weight = (layer.weight * network.scale).double().cpu()
    bias = layer.bias.double().cpu() - weight @ network.shift[0].double().cpu()
    side, classes = basis.side, len(weight)
    cut = width + basis.overview.axes.shape[1]
    own, overview, cells = weight[:, :width], weight[:, width:cut], weight[:, cut:]
    back, moved = _before(basis.overview, overview)
    own, bias = own + back, bias - moved
    blocks = torch.split(cells, [side**2 * n for n in basis.cut], dim=1)
    each = torch.cat([b.reshape(classes, side**2, -1) for b in blocks if b.shape[1]], dim=2)
    back, moved = _before(basis.channels, each)
    bias = bias - moved.sum(1)
    joined = torch.cat([own, back.transpose(1, 2).reshape(classes, -1)], dim=1)
    spec = NetworkSpec(LINEAR, (joined.shape[1],), classes)
    found = Network(nn.Identity(), joined.shape[1], spec).to(network.shift.device)
    found.head.load_state_dict({"weight": joined, "bias": bias})
    return found


def _before(directions: Directions, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights over what the directions were taken of, and what their shift takes away."""
    back = weight @ (directions.scale[:, None] * directions.axes).double().cpu().T
    return back, back @ directions.shift.double().cpu()
