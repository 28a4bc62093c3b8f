"""Where each pattern sits in the pictures of each class.

A picture is a grid of cells, and a cell a few figures: its colour, its contrast and its edges. In
each class the samples that follow the pattern are compared with those that break it, cell by cell
(Hotelling's T², which allows for figures that go together). A map stands only where its peak is
higher than those of shuffled sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from sebra.ranking.ranking import Ranking
from sebra.runs.meter import Meter
from sebra.samples.table import ImageArray
from sebra.workflows.prepared import Prepared
from sebra.workflows.saliency import Maps
from sebra.workflows.verdict import FOUND
from sebra_tools.words import sides_of

Array = npt.NDArray[Any]
RANK = "rank"  # the contrast between both ends of a ranking that names no patterns
END = 1 / 3  # of a class: how much of it is an end of the ranking
EACH_SIDE = 200  # samples of a class that are compared, at most
FEWEST = 2  # samples on a side
CELLS = 14  # along each side of a picture: a frame or a line of text is about one wide
MOST_CLASSES = 12
MOST_PIXELS = 112  # side of the pictures that are compared, and of the mean picture under a map
SHUFFLES = 99  # of the sides; the peak must be higher than all of theirs
RIDGE = 0.3  # of a figure's variance, added to it
_DARK = 0.005  # added before a logarithm: about a step of 255
_BATCH = 64


def find_saliency(
    ranking: Ranking, prepared: Prepared, meter: Meter, state: str, names_patterns: bool
) -> Maps:
    """Per pattern and class a map (0 to 1) and the mean picture of those that follow it.

    Patterns are the stage columns; none where the verdict (`state`) is not that they were found.
    Of a ranking that names none `rank` contrasts its two ends. Empty for data without pictures.
    """
    part, content = prepared._read("train")
    if not isinstance(content, ImageArray) or (names_patterns and state != FOUND):
        return {}
    out = Maps()
    with meter.phase("saliency"), prepared.session.working("looking where it sits"):
        columns: dict[str, Array | None] = {RANK: None}
        if names_patterns:
            columns = {name: ranking.table[name].to_numpy() for name in ranking.stages}
        for name, column in columns.items():
            out[name] = {}
            for c, label in enumerate(part.classes[:MOST_CLASSES]):
                if column is None:
                    rows = np.flatnonzero(part.labels == c)
                    follow, other = _ends(ranking.table["spuriosity"].to_numpy(), rows)
                else:
                    follow, other = sides_of(column, part.labels, c)
                found = place_of(content, follow, other)
                if found is not None:
                    out[name][label] = found
    return out


def _ends(spuriosity: Array, rows: Array) -> tuple[Array, Array]:
    order = rows[np.argsort(-spuriosity[rows], kind="stable")]
    each = int(END * len(order))
    return order[:each], order[len(order) - each :]


def place_of(content: ImageArray, follow: Array, other: Array) -> tuple[Array, Array] | None:
    """Where these two kinds of pictures differ, and the mean of the first; None if nowhere."""
    rng = np.random.default_rng(0)
    sides = [rng.permutation(rows)[:EACH_SIDE] for rows in (follow, other)]
    if min(len(rows) for rows in sides) < FEWEST:
        return None
    pictures = [_small(content, rows) for rows in sides]
    figures = torch.cat([cell_figures(p) for p in pictures])
    side = np.arange(len(figures)) < len(sides[0])
    strength = _apart(figures.numpy(), np.stack([side, *(rng.permutation(side)
                                                for _ in range(SHUFFLES))]))  # fmt: skip
    heat, *shuffled = strength
    if heat.max() <= max(s.max() for s in shuffled):
        return None
    grid = round(len(heat) ** 0.5)
    mean = pictures[0].mean(0).permute(1, 2, 0).round().numpy().astype(np.uint8)
    return (heat / heat.max()).reshape(grid, grid).astype(np.float32), mean


def _small(content: ImageArray, rows: Array) -> torch.Tensor:
    """Pictures as n x 3 x height x width, no larger than needed."""
    parts = []
    for start in range(0, len(rows), _BATCH):
        pixels = np.ascontiguousarray(content.pixels[content.rows[rows[start : start + _BATCH]]])
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
        parts.append(F.avg_pool2d(x, max(1, x.shape[-1] // MOST_PIXELS)))
    return torch.cat(parts)


def cell_figures(pictures: torch.Tensor) -> torch.Tensor:
    """n x cells x figures of pictures of 0 to 255."""
    x = pictures / 255
    grid = min(CELLS, *x.shape[2:])
    luma = x.mean(1, keepdim=True)
    across = F.pad(luma.diff(dim=3).abs(), (0, 1))
    along = F.pad(luma.diff(dim=2).abs(), (0, 0, 0, 1))
    mean, squares, *edges = (
        F.adaptive_avg_pool2d(t, grid) for t in (luma, luma.square(), across, along)
    )
    spread = (squares - mean.square()).clamp_min(0).sqrt()
    logs = [(t + _DARK).log() for t in (spread, *edges)]
    return torch.cat([F.adaptive_avg_pool2d(x, grid), *logs], 1).flatten(2).transpose(1, 2)


def _apart(figures: Array, sides: Array) -> Array:
    """How far the sides are apart in every cell: sides x cells, for many ways to take sides."""
    n, cells, many = figures.shape
    z = figures - figures.mean(0)
    z /= z.std(0) + 1e-6
    spread = np.einsum("ncf,ncg->cfg", z, z) / n + RIDGE * np.eye(many)
    white = np.einsum("ncf,cfg->ncg", z, np.linalg.cholesky(np.linalg.inv(spread)))
    share = sides / sides.sum(1, keepdims=True) - ~sides / (~sides).sum(1, keepdims=True)
    apart = (share @ white.reshape(n, -1)).reshape(len(sides), cells, many)
    return np.asarray(np.square(apart).sum(2))
