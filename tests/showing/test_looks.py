"""Words for what two kinds of pictures differ in."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sebra.showing.looks import differences, look_of


def pictures(colour: tuple[int, int, int], n: int, size: tuple[int, int] = (32, 32)) -> np.ndarray:
    rng = np.random.default_rng(sum(colour))
    out = []
    for _ in range(n):
        pixels = np.full((size[1], size[0], 3), colour) + rng.integers(0, 20, 3)
        out.append(look_of(Image.fromarray(pixels.astype(np.uint8))))
    return np.array(out)


def words(first: np.ndarray, second: np.ndarray) -> list[str]:
    """What the first kind is, compared with the second."""
    score = np.repeat([1, 0], [len(first), len(second)])
    return [word for word, _ in differences(np.concatenate([first, second]), score)]


def test_a_difference_in_colour_is_named_from_either_side() -> None:
    sea, land = pictures((10, 40, 160), 20), pictures((60, 150, 30), 20)
    assert "bluer" in words(sea, land)
    assert "less blue" in words(land, sea)
    assert "greener" in words(land, sea)


def test_brightness_and_shape_are_named() -> None:
    day, night = pictures((220, 220, 220), 20), pictures((20, 20, 20), 20)
    assert words(day, night)[0] == "brighter"
    wide, high = pictures((90, 90, 90), 20, (64, 32)), pictures((90, 90, 90), 20, (32, 64))
    assert words(wide, high) == ["wider"]


def test_pictures_that_are_alike_or_few_differ_in_nothing() -> None:
    assert words(pictures((90, 90, 90), 40), pictures((90, 90, 90), 40)) == []
    assert words(pictures((10, 40, 160), 37), pictures((60, 150, 30), 3)) == []
    assert words(pictures((10, 40, 160), 10), pictures((60, 150, 30), 10)) == []
