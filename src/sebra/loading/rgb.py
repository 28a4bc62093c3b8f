"""Any kind of picture as 8-bit RGB, the way a person would see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image


def to_rgb(image: Image.Image) -> Image.Image:
    """Converts palettes, CMYK, deep grey and transparency (onto white); the first frame only."""
    from PIL import Image

    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode in {"I", "F"} or image.mode.startswith("I;16"):
        return Image.fromarray(_to_8_bits(np.asarray(image), image.format)).convert("RGB")
    if image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info:
        picture = image.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, picture).convert("RGB")
    return image.convert("RGB")


def _to_8_bits(values: npt.NDArray[Any], file_format: str | None) -> npt.NDArray[np.uint8]:
    """Deep grey values to 0..255: 16-bit ones by their full range, others by what they hold."""
    table = values.astype(np.float64)
    if not np.isfinite(table).all():
        raise ValueError("pixels are NaN or infinite")
    low, high = float(table.min()), float(table.max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        scaled = table * 255
    elif values.dtype.itemsize == 2 or (file_format == "PNG" and low >= 0):
        scaled = table / 257
    elif low >= 0 and high <= 255:
        scaled = table
    elif low >= 0 and high <= 65535:
        scaled = table / 257
    else:
        scaled = (table - low) / max(high - low, 1e-12) * 255
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
