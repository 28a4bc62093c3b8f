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


def test_the_middle_is_named_where_it_differs_more_than_the_whole() -> None:
    def cars(colour: tuple[int, int, int], n: int) -> np.ndarray:
        rng = np.random.default_rng(n)
        out = []
        for _ in range(n):
            pixels = np.full((36, 36, 3), 90) + rng.integers(-80, 80, 3)
            pixels[12:24, 12:24] = colour
            out.append(look_of(Image.fromarray(pixels.clip(0, 255).astype(np.uint8))))
        return np.array(out)

    red, grey = cars((200, 40, 40), 41), cars((120, 120, 120), 40)
    assert "redder in the middle" in words(red, grey)
    assert "less red in the middle" in words(grey, red)
    assert "redder" not in words(red, grey)


def test_what_holds_of_the_whole_is_not_said_of_the_middle_too() -> None:
    said = words(pictures((10, 40, 160), 20), pictures((60, 150, 30), 20))
    assert said
    assert not any("middle" in word for word in said)
