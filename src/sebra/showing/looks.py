"""What a picture looks like in a few numbers, and in words what two kinds of pictures differ in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sebra.measuring.ranks import somers_d

if TYPE_CHECKING:
    from PIL import Image

Array = npt.NDArray[Any]

# Per figure the word for more of it and the word for less.
WORDS = (
    ("brighter", "darker"),
    ("redder", "less red"),
    ("greener", "less green"),
    ("bluer", "less blue"),
    ("more colourful", "greyer"),
    ("busier", "smoother"),
    ("wider", "narrower"),
)
GRID = 12  # a picture is reduced to this many cells each way
FEWEST = 30  # pictures, below which nothing is said
FEWEST_OF_TWO = 8  # on either side, where the score has two values only
CLEAR = 0.35  # Somers' D from which a difference is named
MOST_WORDS = 3


def look_of(image: Image.Image) -> tuple[float, ...]:
    """Brightness, redness, greenness, blueness, colourfulness, detail and shape."""
    small = np.asarray(image.convert("RGB").resize((GRID, GRID)), dtype=np.float64) / 255
    red, green, blue = small.mean(axis=(0, 1))
    grey = small.mean(axis=2)
    steps = np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean()
    return (
        float(grey.mean()),
        float(red - (green + blue) / 2),
        float(green - (red + blue) / 2),
        float(blue - (red + green) / 2),
        float((small.max(axis=2) - small.min(axis=2)).mean()),
        float(steps),
        image.width / image.height,
    )


def differences(looks: Array, score: Array) -> list[tuple[str, float]]:
    """In what pictures with a high score differ from those with a low one, clearest first.

    Each word comes with the Somers' D behind it; empty where pictures are few or alike.
    """
    sides = np.unique(score, return_counts=True)[1]
    if len(looks) < FEWEST or (len(sides) == 2 and sides.min() < FEWEST_OF_TWO):
        return []
    # Rounded, so that the noise of compression is no difference in shape or colour.
    levels = np.round(looks, 3)
    found = []
    for k, (more, less) in enumerate(WORDS):
        d = somers_d(levels[:, k], _ranks(score))
        if np.isfinite(d) and abs(d) >= CLEAR:
            found.append((more if d > 0 else less, float(d)))
    return sorted(found, key=lambda pair: -abs(pair[1]))[:MOST_WORDS]


def _ranks(score: Array) -> Array:
    return np.unique(score, return_inverse=True)[1].reshape(-1)
