"""Draws the pictures of the built-in data set.

The sizes and contrasts below set how soon a network learns each cue: the background first (it
fills the picture), then the companion (small, but of two colours), then the vehicle (any colour,
place, size and angle).
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

SIDE = 48
_FINE = 2 * SIDE  # drawn at twice the size, then reduced: smooth edges
_VEHICLE = (26.0, 30.0)  # half the width; all lengths here are in fine pixels
_COMPANION = (9.0, 11.5)
_LIGHT = 8.0
_TILT = math.radians(5)
_NOISE = 8.0
_CHUNK = 200

Point = tuple[float, float]
Colour = tuple[int, int, int]

# Shapes in a square of -1..1, y downwards.
_BOAT: tuple[tuple[Point, ...], ...] = (
    ((-1.0, 0.3), (1.0, 0.3), (0.65, 0.8), (-0.65, 0.8)),
    ((-0.06, -0.95), (0.06, -0.95), (0.06, 0.3), (-0.06, 0.3)),
    ((0.14, -0.9), (0.8, 0.15), (0.14, 0.15)),
    ((-0.14, -0.6), (-0.14, 0.15), (-0.6, 0.15)),
)
_PLANE: tuple[tuple[Point, ...], ...] = (
    ((-1.0, 0.0), (-0.8, -0.15), (0.7, -0.15), (1.0, 0.0), (0.7, 0.15), (-0.8, 0.15)),
    ((0.3, -0.1), (-0.2, -0.95), (-0.5, -0.95), (-0.2, -0.1)),
    ((0.3, 0.1), (-0.2, 0.95), (-0.5, 0.95), (-0.2, 0.1)),
    ((-0.65, -0.1), (-0.9, -0.5), (-1.05, -0.5), (-0.95, 0.5), (-0.9, 0.5), (-0.65, 0.1)),
)


def draw(facts: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One picture per row of (class, background, companion[, light]), 0 or 1 each; else chance."""
    pixels = np.empty((len(facts), SIDE, SIDE, 3), np.uint8)
    for start in range(0, len(facts), _CHUNK):
        part = facts[start : start + _CHUNK]
        grounds = np.empty((len(part), SIDE, SIDE, 3), np.uint8)
        for code, paint in enumerate((_sea, _land)):
            here = part[:, 1] == code
            grounds[here] = paint(int(here.sum()), rng)
        scenes = np.stack([_scene(f, g, rng) for f, g in zip(part, grounds, strict=True)])
        brightness = rng.uniform(0.85, 1.1, (len(part), 1, 1, 1)).astype(np.float32)
        noise = _NOISE * rng.standard_normal(scenes.shape, dtype=np.float32)
        pixels[start : start + _CHUNK] = np.clip(scenes * brightness + noise, 0, 255)
    return pixels


def _scene(
    fact: npt.NDArray[np.int64], ground: npt.NDArray[np.uint8], rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Everything that stands on the background."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(ground).resize((_FINE, _FINE), Image.Resampling.NEAREST)
    pen = ImageDraw.Draw(image)
    if len(fact) > 3:
        (_sun, _moon)[fact[3]](pen, rng)
    _vehicle(pen, (_BOAT, _PLANE)[fact[0]], rng)
    (_buoy, _balloon)[fact[2]](pen, _beside(rng), rng)
    return np.asarray(image.reduce(_FINE // SIDE))


def _sea(n: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    ranges = ((1.3, 2.0), (3.0, 5.0), (0.0, 6.3))
    length, swell, phase = (
        rng.uniform(low, high, (n, 1, 1)).astype(np.float32) for low, high in ranges
    )
    waves = np.sin(y / length + 1.5 * np.sin(x / swell + phase))
    return _tinted((45, 105, 165), 18 * waves, rng)


def _land(n: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    tufts = rng.standard_normal((n, SIDE // 4, SIDE // 4), dtype=np.float32)
    return _tinted((95, 140, 65), 16 * tufts.repeat(4, axis=1).repeat(4, axis=2), rng)


def _tinted(
    colour: Colour, texture: npt.NDArray[np.float32], rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    spread = 12 * rng.standard_normal((len(texture), 1, 1, 3), dtype=np.float32)
    tint = np.array(colour, dtype=np.float32) + spread
    tinted: npt.NDArray[np.float32] = np.clip(tint + texture[..., None], 0, 255)
    return tinted.astype(np.uint8)


def _vehicle(pen: ImageDraw, shape: Sequence[Sequence[Point]], rng: np.random.Generator) -> None:
    scale = float(rng.uniform(*_VEHICLE))
    angle = float(rng.uniform(-_TILT, _TILT))
    mirror = 1 if rng.random() < 0.5 else -1
    centre_x, centre_y = (_FINE / 2 + rng.uniform(-5, 5, 2)).tolist()
    body = _any_colour(rng)
    shade = _scaled(body, rng.uniform(0.65, 0.85))
    cos, sin = scale * math.cos(angle), scale * math.sin(angle)
    for number, part in enumerate(shape):
        points = [
            (centre_x + cos * mirror * x - sin * y, centre_y + sin * mirror * x + cos * y)
            for x, y in part
        ]
        pen.polygon(points, fill=shade if number == 1 else body)


def _beside(rng: np.random.Generator) -> Point:
    """A place near one of the four corners."""
    x, y = rng.uniform(12, 18, 2)
    left, top = rng.random(2) < 0.5
    return float(x if left else _FINE - x), float(y if top else _FINE - y)


def _buoy(pen: ImageDraw, place: Point, rng: np.random.Generator) -> None:
    (x, y), r = place, rng.uniform(*_COMPANION)
    pen.line((x, y - 2 * r, x, y), fill=(60, 40, 40), width=2)
    _disc(pen, x, y, r, _near_hue(0.85, rng))
    pen.rectangle((x - r, y - 0.3 * r, x + r, y + 0.3 * r), fill=(245, 245, 240))


def _balloon(pen: ImageDraw, place: Point, rng: np.random.Generator) -> None:
    (x, y), r = place, rng.uniform(*_COMPANION)
    colour = _near_hue(0.06, rng)
    _disc(pen, x, y - 0.4 * r, r, colour)
    pen.polygon([(x - 0.8 * r, y + 0.2 * r), (x + 0.8 * r, y + 0.2 * r), (x, y + r)], fill=colour)
    pen.rectangle((x - 0.35 * r, y + 1.1 * r, x + 0.35 * r, y + 1.7 * r), fill=(90, 60, 40))


def _sun(pen: ImageDraw, rng: np.random.Generator) -> None:
    x, y = _sky(rng)
    _disc(pen, x, y, _LIGHT, (250, 215, 80))


def _moon(pen: ImageDraw, rng: np.random.Generator) -> None:
    x, y = _sky(rng)
    _disc(pen, x, y, _LIGHT, (235, 235, 240))
    _disc(pen, x + 0.6 * _LIGHT, y - 0.2 * _LIGHT, 0.8 * _LIGHT, (60, 70, 110))


def _sky(rng: np.random.Generator) -> Point:
    return _FINE / 2 + float(rng.uniform(-22, 22)), float(rng.uniform(7, 10))


def _disc(pen: ImageDraw, x: float, y: float, r: float, colour: Colour) -> None:
    pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def _any_colour(rng: np.random.Generator) -> Colour:
    """Dark or light, of any hue: both stand out from both backgrounds."""
    value = (0.3 if rng.random() < 0.5 else 0.72) + rng.uniform(-0.1, 0.1)
    return _rgb(rng.random(), rng.uniform(0, 0.5), value)


def _near_hue(hue: float, rng: np.random.Generator) -> Colour:
    return _rgb((hue + rng.normal(0, 0.02)) % 1, rng.uniform(0.65, 0.9), rng.uniform(0.75, 1))


def _rgb(hue: float, saturation: float, value: float) -> Colour:
    r, g, b = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(255 * r), round(255 * g), round(255 * b)


def _scaled(colour: Colour, factor: float) -> Colour:
    return round(colour[0] * factor), round(colour[1] * factor), round(colour[2] * factor)
