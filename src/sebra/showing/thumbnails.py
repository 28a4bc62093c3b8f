"""Small pictures as data addresses, within a budget of bytes."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sebra.samples.table import ImageArray, ImageFiles, IntArray, Samples

if TYPE_CHECKING:
    from PIL import Image

Thumbnail = Callable[[int], "Image.Image | None"]

SIDES = (192, 160, 128, 96, 72, 48)
BYTES_PER_PIXEL = 0.3  # of a JPEG at QUALITY with its base64, on photographs
QUALITY = 74
AIM_BYTES = 7_000_000  # for all pictures, by estimate; the page's budget is what binds
LONGEST = 1.6  # of the long side to `side`; a longer picture is made smaller
FULL_COLOUR_BELOW = 64  # small pictures keep their colour resolution
THREADS = 4
SIDE = 224  # of a heat map
STRONGEST = 0.75  # opacity where the map is 1


def side_for(count: int) -> int:
    """The largest short side with which this many pictures stay small together."""
    for side in SIDES:
        if count * side * side * BYTES_PER_PIXEL <= AIM_BYTES:
            return side
    return SIDES[-1]


def pictures_of(samples: Samples, rows: IntArray, side: int) -> Thumbnail:
    """Reads the picture of a table row, at least `side` large where the original is."""
    content = samples.content

    def read(i: int) -> Image.Image | None:
        from PIL import Image, ImageOps

        from sebra.samples.picture import FORMATS, to_rgb

        row = int(rows[i])
        if row < 0:
            return None
        if isinstance(content, ImageArray):
            return Image.fromarray(content.pixels[content.rows[row]])
        if isinstance(content, ImageFiles):
            with Image.open(content.paths[row], formats=FORMATS) as image:
                image.draft(None, (side, side))
                return to_rgb(ImageOps.exif_transpose(image), image.format)
        return None

    return read


def addresses(thumbnail: Thumbnail, rows: Sequence[int], side: int) -> Iterator[str | None]:
    """The picture of each row, None where there is none to show.

    `thumbnail` is called from several threads.
    """

    def encode(row: int) -> str | None:
        try:
            image = thumbnail(row)
        except (OSError, ValueError, SyntaxError):  # moved or broken since it was ranked
            return None
        return None if image is None else data_address(image, side)

    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(encode, rows)


def data_address(image: Image.Image, side: int) -> str:
    """A JPEG of the whole image, its short side `side` at most, without its meta data."""
    from PIL import Image as Images

    image = image.convert("RGB")
    scale = min(side / min(image.size), LONGEST * side / max(image.size))
    if scale < 1:
        width, height = (max(1, round(length * scale)) for length in image.size)
        image = image.resize((width, height), Images.Resampling.LANCZOS, reducing_gap=2.0)
    small = min(image.size) <= FULL_COLOUR_BELOW
    out = io.BytesIO()
    image.save(
        out,
        "JPEG",
        quality=90 if small else QUALITY,
        subsampling=0 if small else 2,
        optimize=True,
        exif=b"",
        icc_profile=None,
    )
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def heated(heat: npt.NDArray[Any], picture: npt.NDArray[Any]) -> Image.Image:
    """The picture in grey, warm where the map (0 to 1) is high."""
    from matplotlib import colormaps
    from PIL import Image

    below = Image.fromarray(picture).convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    levels = Image.fromarray((np.clip(heat, 0, 1) * 255).round().astype(np.uint8))
    smooth = np.asarray(levels.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) / 255
    grey = np.repeat(np.asarray(below, dtype=np.float64)[:, :, None], 3, axis=2) / 255
    colour = np.asarray(colormaps["inferno"](smooth))[:, :, :3]
    opacity = STRONGEST * smooth[:, :, None]
    mixed = (1 - opacity) * grey + opacity * colour
    return Image.fromarray((mixed * 255).round().astype(np.uint8))
