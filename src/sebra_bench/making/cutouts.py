"""Pictures with a mask: found in folders, cut out, put onto another picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import images_under
from sebra.samples.picture import to_rgb

if TYPE_CHECKING:
    from PIL import Image

MASK_SUFFIX = "_mask.png"
_OPAQUE = 128  # a mask's pixel belongs to the thing from this value on


@dataclass(frozen=True)
class Cutout:
    """A picture and where its mask is: in `mask`, or (None) in the picture's own transparency."""

    picture: Path
    mask: Path | None


def cutouts_under(folder: Path) -> list[Cutout]:
    """Every picture below `folder` with `NAME_mask.png` beside it, or with transparency."""
    pictures = [path for path in images_under(folder) if not path.name.endswith(MASK_SUFFIX)]
    found = []
    for picture in pictures:
        mask = picture.with_name(picture.stem + MASK_SUFFIX)
        found.append(Cutout(picture, mask if mask.is_file() else None))
    return found


def open_upright(path: Path) -> Image.Image:
    """The picture as a camera held it upright, in its own mode."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            return ImageOps.exif_transpose(image).copy()
    except (OSError, ValueError, SyntaxError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise UsageError(f"{path}: cannot be read ({reason}); repair or remove it") from None


def cut_out(cutout: Cutout, longer_side: int) -> tuple[Image.Image, Image.Image]:
    """The thing alone, its longer side scaled to `longer_side`, and its mask (black and white)."""
    from PIL import Image

    picture = open_upright(cutout.picture)
    mask = _mask(cutout, picture)
    if mask.size != picture.size:
        raise UsageError(f"{cutout.mask}: is not as large as {cutout.picture.name}")
    binary = mask.point([255 if value >= _OPAQUE else 0 for value in range(256)])
    box = binary.getbbox()
    if box is None:
        raise UsageError(f"{cutout.mask or cutout.picture}: the mask is empty")
    # Colours under the mask stay as they are: `to_rgb` would mix white into transparent edges.
    colours = to_rgb(picture) if cutout.mask is not None else picture.convert("RGB")
    picture, binary = colours.crop(box), binary.crop(box)
    scale = longer_side / max(picture.size)
    size = (max(1, int(picture.width * scale)), max(1, int(picture.height * scale)))
    return (
        picture.resize(size, Image.Resampling.BILINEAR),
        binary.resize(size, Image.Resampling.NEAREST),
    )


def paste(target: Image.Image, cutout: Cutout, scale: float, centre: tuple[float, float]) -> None:
    """Puts the thing on a square picture: `scale` of its side, `centre` as (row, column) shares."""
    side = target.width
    thing, mask = cut_out(cutout, int(scale * side))
    top = max(0, int(centre[0] * side) - thing.height // 2)
    left = max(0, int(centre[1] * side) - thing.width // 2)
    target.paste(thing, (left, top), mask)


def square(path: Path, side: int) -> Image.Image:
    """A picture as a background: scaled to the side and cropped at the middle."""
    from PIL import Image, ImageOps

    picture = to_rgb(open_upright(path))
    return ImageOps.fit(picture, (side, side), Image.Resampling.BILINEAR)


def _mask(cutout: Cutout, picture: Image.Image) -> Image.Image:
    if cutout.mask is not None:
        return open_upright(cutout.mask).convert("L")
    if picture.mode in {"RGBA", "LA", "PA"} or "transparency" in picture.info:
        alpha = picture.convert("RGBA").getchannel("A")
        if np.asarray(alpha).min() < _OPAQUE:
            return alpha
    raise UsageError(
        f"{cutout.picture}: has no mask; put {cutout.picture.stem}{MASK_SUFFIX} beside it or make "
        "its surroundings transparent"
    )
