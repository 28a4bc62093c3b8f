"""Narrow views of samples: parts of what is known of them, in each of which a nuisance is loud."""

from __future__ import annotations

from dataclasses import dataclass

from sebra.engine.patches import Basis
from sebra.loading.descriptors import BORDER, COLOUR, LIGHT, PLACES, SHARPNESS, STRIP, columns_of


@dataclass(frozen=True)
class View:
    """Some columns of a task's features, and after them of its figures, under a name."""

    name: str
    columns: tuple[int, ...]


def views_of_pictures(features: int, basis: Basis | None) -> tuple[View, ...]:
    """Colour, light, sharpness, the border and nine places.

    features: how many stand before the figures. basis: of patch features, whose cells at the sides
    show the places there as well if they are as small.
    """
    out = []
    for name in (COLOUR, LIGHT, SHARPNESS, BORDER, *PLACES):
        figures = [features + column for column in columns_of(name)]
        cells = _cells(name, basis) if basis is not None and name in PLACES else []
        out.append(View(name, (*cells, *figures)))
    return tuple(out)


def _cells(place: str, basis: Basis) -> list[int]:
    """The columns of the patch features of a place at a side; none for the centre."""
    side, channels = basis.side, basis.few
    if place == "centre" or round(1 / STRIP) != side:
        return []
    inside = list(range(1, side - 1))
    rows = [0] if "top" in place else [side - 1] if "bottom" in place else inside
    columns = [0] if "left" in place else [side - 1] if "right" in place else inside
    first = basis.overview.axes.shape[1]
    return [
        first + (row * side + column) * channels + k
        for row in rows
        for column in columns
        for k in range(channels)
    ]
