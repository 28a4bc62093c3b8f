"""One image file as a square of 8-bit RGB, the way a person would see it, or why it cannot be."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 100_000_000
MAX_BYTES = 1 << 30
# The formats of `IMAGE_SUFFIXES`, recognised by content. Others stay shut: PIL would hand
# PostScript to Ghostscript and has decoders that few people ever looked at.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
Pixels = npt.NDArray[np.uint8]
Result = TypeVar("Result")


class Unreadable(ValueError):
    """Why an image cannot be used. `passing`: the system's fault, it may be readable later."""

    def __init__(self, reason: str, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


def decode_image(path: Path, size: int) -> Pixels:
    """One image as a square; raises `Unreadable` with a reason a person understands."""
    return _open(path, lambda image: _square(image, size))


def image_side(path: Path) -> int | None:
    """The longer side of an image that can be read to its end; None of any other."""

    def side(image: Image.Image) -> int:
        found = max(image.size)
        _square(image, 1)
        return found

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _open(path, side)
    except Unreadable:  # told when the file is decoded
        return None


def _open(path: Path, use: Callable[[Image.Image], Result]) -> Result:
    from PIL import Image, UnidentifiedImageError

    try:
        check_file(path)
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Unreadable(_too_large(f"{image.width} x {image.height}"))
            return use(image)
    except (Unreadable, MemoryError):
        raise
    except PermissionError:
        raise Unreadable("no permission to read the file") from None
    except FileNotFoundError:
        raise Unreadable("file not found", passing=True) from None
    except UnidentifiedImageError:
        raise Unreadable("not a readable image") from None
    except Image.DecompressionBombError:
        raise Unreadable(_too_large("it")) from None
    except OSError as error:
        if error.errno is None:  # PIL's own, about the content
            raise Unreadable(_reason(error)) from error
        raise Unreadable(f"cannot be read ({error.strerror})", passing=True) from error
    except Exception as error:  # a broken file can make a decoder raise nearly anything
        raise Unreadable(_reason(error)) from error


def check_file(path: Path) -> None:
    """Refuses what is no plain file with something in it: opening a pipe would wait for ever."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        reason = "link to a file that is not there" if path.is_symlink() else "file not found"
        raise Unreadable(reason) from None
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable("a folder, not an image")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("not a plain file")
    if status.st_size == 0:
        raise Unreadable("empty file")
    if status.st_size > MAX_BYTES:
        raise Unreadable(f"file too large: more than {MAX_BYTES >> 20} MiB")


def _square(image: Image.Image, size: int) -> Pixels:
    from PIL import ImageOps

    file_format = image.format
    image.draft(None, (size, size))  # JPEG: decodes at a fraction of the full size
    return to_square(to_rgb(ImageOps.exif_transpose(image), file_format), size)


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


def _reason(error: Exception) -> str:
    """The decoder's words; the many it has for a file that ends too soon become the same ones."""
    text = str(error).splitlines()[0] if str(error) else repr(error)
    return "image file is truncated" if "truncated" in text.lower() else text


def _too_large(what: str) -> str:
    return f"image too large: {what} has more than {MAX_PIXELS // 10**6} megapixels"
