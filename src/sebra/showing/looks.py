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
COLOURS = (
    ("brighter", "darker"),
    ("redder", "less red"),
    ("greener", "less green"),
    ("bluer", "less blue"),
    ("more colourful", "greyer"),
)
MIDDLE = " in the middle"
WORDS = (
    *COLOURS,
    ("busier", "smoother"),
    ("wider", "narrower"),
    *((more + MIDDLE, less + MIDDLE) for more, less in COLOURS),
)
GRID = 12  # a picture is reduced to this many cells each way
FEWEST = 30  # pictures, below which nothing is said
FEWEST_OF_TWO = 8  # on either side, where the score has two values only
CLEAR = 0.35  # Somers' D from which a difference is named
CLEARER = 0.1  # by which the middle must differ more than the whole to be named
MOST_WORDS = 3


def look_of(image: Image.Image) -> tuple[float, ...]:
    """One figure for each of `WORDS`: the whole picture's colours, detail, shape, its middle's."""
    small = np.asarray(image.convert("RGB").resize((GRID, GRID)), dtype=np.float64) / 255
    grey = small.mean(axis=2)
    steps = np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean()
    third = GRID // 3
    middle = small[third:-third, third:-third]
    return (*colours(small), float(steps), image.width / image.height, *colours(middle))


def colours(pixels: Array) -> tuple[float, ...]:
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
    ds = [somers_d(levels[:, k], _ranks(score)) for k in range(len(WORDS))]
    for k, (d, (more, less)) in enumerate(zip(ds, WORDS, strict=True)):
        whole = ds[k - len(WORDS) + len(COLOURS)] if more.endswith(MIDDLE) else None
        if whole is not None and not abs(d) >= abs(whole) + CLEARER:
            continue  # said of the whole picture already, or of nothing
        if np.isfinite(d) and abs(d) >= CLEAR:
            found.append((more if d > 0 else less, float(d)))
    return sorted(found, key=lambda pair: -abs(pair[1]))[:MOST_WORDS]


def _ranks(score: Array) -> Array:
    return np.unique(score, return_inverse=True)[1].reshape(-1)
