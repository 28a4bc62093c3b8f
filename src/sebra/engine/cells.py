"""A body whose features are the penultimate ones and the cells of a map on the way.

Directions are linear in those, so a linear head over directions of cells is one over this body:
that is how a model that was trained on finer cells is kept.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sebra.engine.networks import LINEAR, Network, NetworkSpec
from sebra.engine.patches import Basis, middle_stage


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
    """The linear network over `width` features and directions of finer cells, over cells alone."""
    layer = network.head
    assert isinstance(layer, nn.Linear)
    assert network.spec.hidden == 0
    weight = (layer.weight * network.scale).double().cpu()
    bias = layer.bias.double().cpu() - weight @ network.shift[0].double().cpu()
    classes, seen = len(weight), basis.channels
    cells = weight[:, width:].reshape(classes, basis.finer**2, -1)
    # Weights over what the directions were taken of, and what their shift takes away.
    back = cells @ (seen.scale[:, None] * seen.axes).double().cpu().T
    bias = bias - (back @ seen.shift.double().cpu()).sum(1)
    joined = torch.cat([weight[:, :width], back.transpose(1, 2).reshape(classes, -1)], dim=1)
    spec = NetworkSpec(LINEAR, (joined.shape[1],), classes)
    found = Network(nn.Identity(), joined.shape[1], spec).to(network.shift.device)
    found.head.load_state_dict({"weight": joined, "bias": bias})
    return found
