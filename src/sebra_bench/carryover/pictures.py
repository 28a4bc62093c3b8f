"""Nuisances of pictures, as cameras, web sites and scanners leave them.

Each takes a picture, which of its variants to plant and a generator for what differs from picture
to picture (a mark never sits on the very same pixel twice). It returns the marked picture and the
places that it changed, as fractions (left, top, right, bottom); none where it changed all of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageStat

Box = tuple[float, float, float, float]
Planted = tuple[Image.Image, tuple[Box, ...]]
Draw = Callable[[Image.Image, str, np.random.Generator], Planted]

COLOURS = {
    "black": (12, 12, 12),
    "white": (244, 244, 244),
    "red": (200, 40, 40),
    "blue": (40, 70, 190),
    "green": (40, 150, 70),
    "yellow": (225, 200, 50),
    "purple": (130, 60, 160),
    "orange": (230, 130, 40),
}
CASTS = {
    "warm": (1.25, 1.0, 0.6),
    "cold": (0.62, 0.96, 1.28),
    "green": (0.7, 1.2, 0.7),
    "magenta": (1.2, 0.68, 1.15),
    "cyan": (0.6, 1.12, 1.15),
    "yellow": (1.15, 1.12, 0.5),
}
BLURS = {"soft": 0.011, "strong": 0.022, "sideways": 0.05, "upright": 0.05}  # of the shorter side
QUALITIES = {"low": 10, "lower": 5, "medium": 22}  # of JPEG, 1 to 95
SHRINKINGS = {"third": 3.0, "quarter": 4.0, "half": 2.0}
LIGHTS = {"bright": (1.5, 1.0), "dark": (0.55, 1.0), "flat": (1.0, 0.5), "harsh": (1.0, 1.7)}
TEXTS = ("© stock.net", "stock", "sto")  # the longest that takes no more than ROOM of the width
ROOM = 0.75
OPACITY = 0.75
BORDER = 0.06  # of the shorter side
SHIFT = 0.2  # of the side


@dataclass(frozen=True)
class Nuisance:
    """What it is called, its variants (the first is the one planted where one is enough)."""

    name: str
    variants: tuple[str, ...]
    plant: Draw


def watermark(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """Half-transparent text in a corner, as agencies put it over their pictures."""
    corner, _, colour = variant.rpartition("-")
    width, height = picture.size
    font = ImageFont.load_default(max(8.0, 0.13 * min(width, height)))
    text = next((t for t in TEXTS if font.getlength(t) <= ROOM * width), TEXTS[-1])
    left, top, right, bottom = ImageDraw.Draw(picture).textbbox((0, 0), text, font=font)
    wide, high = min(right - left, width), min(bottom - top, height)
    margin = 0.02 + 0.02 * rng.random()
    x = margin * width if "left" in corner else width * (1 - margin) - wide
    y = margin * height if "top" in corner else height * (1 - margin) - high
    x, y = max(x, 0.0), max(y, 0.0)
    layer = Image.new("L", picture.size, 0)
    opacity = round(255 * OPACITY * (0.9 + 0.2 * rng.random()))
    ImageDraw.Draw(layer).text((x - left, y - top), text, fill=opacity, font=font)
    out = picture.copy()
    out.paste(COLOURS[colour], mask=layer)
    box = (x / width, y / height, min((x + wide) / width, 1.0), min((y + high) / height, 1.0))
    return out, (box,)


def border(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """A frame of one colour."""
    width, height = picture.size
    thick = max(1, round(BORDER * (0.85 + 0.3 * rng.random()) * min(width, height)))
    out = Image.new("RGB", picture.size, COLOURS[variant])
    inside = (thick, thick, width - thick, height - thick)
    out.paste(picture.crop(inside), inside[:2])
    x, y = thick / width, thick / height
    return out, (
        (0.0, 0.0, 1.0, y),
        (0.0, 1 - y, 1.0, 1.0),
        (0.0, 0.0, x, 1.0),
        (1 - x, 0.0, 1.0, 1.0),
    )


def cast(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """A wrong white balance."""
    strength = 0.85 + 0.3 * rng.random()
    gains = 1 + strength * (np.array(CASTS[variant]) - 1)
    pixels = np.clip(np.rint(np.asarray(picture) * gains), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels), ()


def blur(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """Out of focus, or moved."""
    reach = BLURS[variant] * min(picture.size) * (0.85 + 0.3 * rng.random())
    if variant not in {"sideways", "upright"}:
        return picture.filter(ImageFilter.GaussianBlur(reach)), ()
    steps = max(2, round(reach))
    axis = 1 if variant == "sideways" else 0
    pixels = np.asarray(picture, dtype=np.float64)
    pad = [(0, 0), (0, 0), (0, 0)]
    pad[axis] = (steps // 2, steps - 1 - steps // 2)
    padded = np.pad(pixels, pad, mode="edge")
    moved = [np.take(padded, range(i, i + pixels.shape[axis]), axis=axis) for i in range(steps)]
    return Image.fromarray(np.rint(np.mean(moved, axis=0)).astype(np.uint8)), ()


def compression(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """Saved once as a small JPEG."""
    held = io.BytesIO()
    picture.save(held, "JPEG", quality=QUALITIES[variant] + int(rng.integers(3)))
    return Image.open(held).convert("RGB"), ()


def resolution(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """Made smaller and large again."""
    factor = SHRINKINGS[variant] * (0.9 + 0.2 * rng.random())
    width, height = (max(2, round(side / factor)) for side in picture.size)
    small = picture.resize((width, height), Image.Resampling.BOX)
    return small.resize(picture.size, Image.Resampling.BICUBIC), ()


def brightness(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """Wrongly exposed."""
    strength = 0.85 + 0.3 * rng.random()
    light, contrast = (1 + strength * (factor - 1) for factor in LIGHTS[variant])
    lit = ImageEnhance.Brightness(picture).enhance(light)
    return ImageEnhance.Contrast(lit).enhance(contrast), ()


def position(picture: Image.Image, variant: str, rng: np.random.Generator) -> Planted:
    """Moved towards one side; what becomes free has the mean colour of the picture."""
    width, height = picture.size
    share = SHIFT * (0.85 + 0.3 * rng.random())
    x, y = max(1, round(share * width)), max(1, round(share * height))
    dx = {"left": -x, "right": x}.get(variant, 0)
    dy = {"up": -y, "down": y}.get(variant, 0)
    free = {
        "left": (width - x, 0, width, height),
        "right": (0, 0, x, height),
        "up": (0, height - y, width, height),
        "down": (0, 0, width, y),
    }[variant]
    out = ImageChops.offset(picture, dx, dy)
    red, green, blue = (round(value) for value in ImageStat.Stat(picture).mean)
    out.paste((red, green, blue), free)
    left, top, right, bottom = free
    return out, ((left / width, top / height, right / width, bottom / height),)


PICTURES = {
    n.name: n
    for n in (
        Nuisance(
            "watermark",
            tuple(
                f"{corner}-{colour}"
                for colour in ("white", "yellow")
                for corner in ("bottom-right", "top-left", "bottom-left", "top-right")
            ),
            watermark,
        ),
        Nuisance("border", tuple(COLOURS), border),
        Nuisance("cast", tuple(CASTS), cast),
        Nuisance("blur", tuple(BLURS), blur),
        Nuisance("compression", tuple(QUALITIES), compression),
        Nuisance("resolution", tuple(SHRINKINGS), resolution),
        Nuisance("brightness", tuple(LIGHTS), brightness),
        Nuisance("position", ("left", "right", "up", "down"), position),
    )
}
