"""One image file as a square of 8-bit RGB, the way a person would see it, or why it cannot be."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 100_000_000
Pixels = npt.NDArray[np.uint8]


def decode_image(path: Path, size: int) -> Pixels:
    """One image as a square; raises `ValueError` with a reason a person understands."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(_too_large(f"{image.width} x {image.height}"))
            image.draft(None, (size, size))  # JPEG: decodes at a fraction of the full size
            upright = ImageOps.exif_transpose(image)
            return to_square(to_rgb(upright, image.format), size)
    except FileNotFoundError:
        raise ValueError("file not found") from None
    except PermissionError:
        raise ValueError("no permission to read the file") from None
    except UnidentifiedImageError:
        reason = "empty file" if path.stat().st_size == 0 else "not a readable image"
        raise ValueError(reason) from None
    except Image.DecompressionBombError:
        raise ValueError(_too_large("it")) from None
    except MemoryError:
        raise
    except Exception as error:  # a broken file can make a decoder raise nearly anything
        raise ValueError(str(error).splitlines()[0] if str(error) else repr(error)) from error


def short_side(path: Path) -> int | None:
    """The shorter side from the file's header; None where it has no good one."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                return min(image.size)
    except (OSError, ValueError, SyntaxError):  # told when the file is decoded
        return None


def to_square(image: Image.Image, size: int) -> Pixels:
    """Squashed to the square (not cropped: what is at a border may be the shortcut)."""
    from PIL.Image import Resampling

    if image.size != (size, size):
        image = image.resize((size, size), Resampling.BILINEAR)
    return np.asarray(image)


def to_rgb(image: Image.Image, file_format: str | None = None) -> Image.Image:
    """Converts palettes, CMYK, deep grey and transparency (onto white); the first frame only."""
    from PIL import Image

    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode in {"I", "F"} or image.mode.startswith("I;16"):
        return Image.fromarray(_to_8_bits(np.asarray(image), file_format)).convert("RGB")
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


def _too_large(what: str) -> str:
    return f"image too large: {what} has more than {MAX_PIXELS // 10**6} megapixels"
