"""A heat map laid over a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

SIDE = 224
STRONGEST = 0.75  # opacity where the map is 1


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
