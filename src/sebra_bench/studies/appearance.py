"""Plain figures of pictures, and how they go with an order of the samples of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.samples.table import ImageArray

Array = npt.NDArray[Any]
PARTS = ("picture", "centre", "border")
KINDS = ("brightness", "redness", "greenness", "blueness", "colourfulness", "detail")
FIGURES = tuple(f"{part} {kind}" for part in PARTS for kind in KINDS)
CELLS = 40  # a picture is looked at in about this many cells each way
INNER = (0.35, 0.65)  # the centre, as shares of width and height
OUTER = (0.15, 0.85)  # what lies outside is the border
SHUFFLES = 1000
TYPICAL = 0.2  # standard deviations between classes from which a figure is typical of one
SURE = 0.01  # chance, over all figures and classes together, below which a link is believed


@dataclass(frozen=True)
class Link:
    """How a figure goes with an order within a class.

    rho: Spearman's, positive where samples high in the order have more of it; low, high: its 95 %
    interval. chance: how often a shuffled order links any figure to any class as strongly.
    typical: how far the class lies above all others in it, in standard deviations. beyond: rho
    once the border's figures are taken out of the centre's; None for the rest of the picture.
    """

    label: int
    figure: str
    n: int
    rho: float
    low: float
    high: float
    chance: float
    typical: float
    beyond: float | None

    @property
    def shortcut(self) -> bool:
        """Whether samples with more of what is typical of their class come first."""
        return self.chance < SURE and abs(self.typical) >= TYPICAL and self.rho * self.typical > 0


def looks_of(content: ImageArray, rows: Array) -> Array:
    """Rows x figures, in the order of `FIGURES`."""
    return np.stack([_look(content.pixels[content.rows[row]]) for row in rows])


def links(looks: Array, labels: Array, order: Array, seed: int = 0) -> list[Link]:
    """Every figure with every class; `order` is higher for samples that come first."""
    rng = np.random.default_rng(seed)
    found: list[Link] = []
    strongest = np.zeros(SHUFFLES)
    for c in np.unique(labels):
        at = labels == c
        n = int(at.sum())
        if n < 10:
            continue
        place = _standard(_ranks(order[at][:, None]))
        figures = _standard(_ranks(looks[at]))
        shuffled = np.stack([rng.permutation(place[:, 0]) for _ in range(SHUFFLES)])
        strongest = np.maximum(strongest, np.abs(shuffled @ figures / n).max(1))
        rho = place[:, 0] @ figures / n
        beyond = _beyond(figures, place[:, 0])
        for k, figure in enumerate(FIGURES):
            low, high = interval(float(rho[k]), n)
            found.append(
                Link(int(c), figure, n, float(rho[k]), low, high, 0.0,
                     _typical(looks[:, k], at), beyond.get(k))
            )  # fmt: skip
    chances = [(1 + (strongest >= abs(f.rho)).sum()) / (1 + SHUFFLES) for f in found]
    return [Link(**{**f.__dict__, "chance": float(p)}) for f, p in zip(found, chances, strict=True)]


def interval(rho: float, n: int) -> tuple[float, float]:
    """95 % of Spearman's rho, by Fisher's z with the variance (1 + rho² / 2) / (n - 3) of ranks."""
    z = np.arctanh(np.clip(rho, -0.999999, 0.999999))
    half = 1.96 * np.sqrt((1 + rho**2 / 2) / (n - 3))
    return float(np.tanh(z - half)), float(np.tanh(z + half))


def _look(pixels: Array) -> Array:
    height, width = pixels.shape[:2]
    step = max(1, min(height, width) // CELLS)
    x = pixels[::step, ::step].astype(np.float64) / 255
    rows, columns = np.linspace(0, 1, x.shape[0]), np.linspace(0, 1, x.shape[1])

    def inside(low: float, high: float) -> Array:
        down, across = (rows >= low) & (rows <= high), (columns >= low) & (columns <= high)
        return np.outer(down, across)

    grey = x.mean(2)
    steps = np.zeros(grey.shape)
    steps[1:] += np.abs(np.diff(grey, axis=0))
    steps[:, 1:] += np.abs(np.diff(grey, axis=1))
    parts = (np.ones(grey.shape, dtype=bool), inside(*INNER), ~inside(*OUTER))
    return np.array([f for part in parts for f in (*colours(x[part]), steps[part].mean())])


def _beyond(figures: Array, place: Array) -> dict[int, float]:
    """The centre's figures without what the border's tell of them and of the order."""
    n = len(KINDS)
    centre, border = np.arange(n, 2 * n), figures[:, 2 * n : 3 * n]

    def left(values: Array) -> Array:
        fitted = border @ np.linalg.lstsq(border, values, rcond=None)[0]
        return _standard((values - fitted).reshape(len(values), -1))

    rest = left(place)[:, 0] @ left(figures[:, centre]) / len(place)
    return {int(k): float(r) for k, r in zip(centre, rest, strict=True)}


def _typical(values: Array, at: Array) -> float:
    spread = values.std()
    if at.all() or not spread:
        return 0.0
    return float((values[at].mean() - values[~at].mean()) / spread)


def _ranks(values: Array) -> Array:
    from scipy.stats import rankdata

    ranks: Array = rankdata(values, axis=0)
    return ranks


def _standard(values: Array) -> Array:
    spread = values.std(0)
    centred: Array = (values - values.mean(0)) / np.where(spread > 1e-12, spread, 1.0)
    return centred


def colours(pixels: npt.NDArray[Any]) -> tuple[float, ...]:
    """Brightness, redness, greenness, blueness and colourfulness of pixels (… x 3, 0 to 1)."""
    pixels = pixels.reshape(-1, 3)
    red, green, blue = pixels.mean(axis=0)
    return (
        float(pixels.mean()),
        float(red - (green + blue) / 2),
        float(green - (red + blue) / 2),
        float(blue - (red + green) / 2),
        float((pixels.max(axis=1) - pixels.min(axis=1)).mean()),
    )
