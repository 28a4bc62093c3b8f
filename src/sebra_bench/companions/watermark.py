"""ImageNet-W's watermark: six Chinese characters in half-transparent white over the picture.

As published for pictures of 224 pixels: the text at 1 % of the width and 40 % of the height (its
upper left corner), 36 pixels high, with an opacity of one half. It grows with the picture, so it
covers nearly the whole width and is centred for the eye.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError

if TYPE_CHECKING:
    from PIL import ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

TEXT = "捷径捷径捷径"  # "shortcut", three times
OPACITY = 128 / 255
COLOUR = 255
LEFT, TOP = 0.01, 0.4  # of the width and of the height
FONT_SIZES = {224: 36, 384: 62, 512: 82, 518: 84}  # pixels, by the picture's side
SIDE_PER_FONT_SIZE = 6.22  # for every other side
PACKAGE = "fonts-noto-cjk"
# Where systems keep a font with the characters; the published one is Source Han Serif SC, which
# is Noto Serif CJK under another name. The number picks the simplified Chinese face of the file.
KNOWN_FONTS = (
    ("/usr/share/fonts/opentype/noto/NotoSerifCJK-ExtraLight.ttc", 2),
    ("/usr/share/fonts/opentype/noto/NotoSerifCJK-Regular.ttc", 2),
    ("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc", 2),
    ("/usr/share/fonts/noto-cjk/NotoSerifCJK-ExtraLight.ttc", 2),
    ("/usr/share/fonts/truetype/arphic/uming.ttc", 0),
    ("/usr/share/fonts/truetype/wqy/wqy-microhei.ttc", 0),
    ("/System/Library/Fonts/STHeiti Light.ttc", 0),
    ("C:/Windows/Fonts/simsun.ttc", 0),
)
_NO_CHARACTER = "\uffff"

Pixels = npt.NDArray[np.uint8]


class Watermark:
    """Marks pictures of any size. `text` and `font` (a file) replace the published ones.

    A font that lacks a character of the text is a `UsageError`, and so is none at all.
    """

    def __init__(self, text: str = "", font: str = "") -> None:
        self.text = text or TEXT
        self._font = find_font(self.text, font)

    def alpha(self, height: int, width: int) -> npt.NDArray[np.float32]:
        """How opaque the mark is at every pixel, 0 to 128/255."""
        return _alpha(self.text, self._font, height, width)

    def mark(self, pixels: Pixels) -> Pixels:
        """Marked copies of pictures (n x height x width x 3)."""
        alpha = self.alpha(*pixels.shape[1:3])
        rows = np.flatnonzero(alpha.any(axis=1))
        out = pixels.copy()
        if len(rows):
            band = slice(int(rows[0]), int(rows[-1]) + 1)
            share = alpha[band, :, None]
            mixed = out[:, band] * (1 - share) + COLOUR * share
            out[:, band] = np.rint(mixed).astype(np.uint8)
        return out


def font_size(side: int) -> int:
    """The height of the text in pixels for a picture of this side."""
    return FONT_SIZES.get(side, max(1, int(side / SIDE_PER_FONT_SIZE)))


FontFile = tuple[str, int]  # the file and which of its faces; no file: the one Pillow carries


def find_font(text: str, font: str = "") -> FontFile:
    """A font that has every character of the text: the one given, or one of the system's."""
    if font:
        file = Path(font).expanduser()
        if not file.is_file():
            raise UsageError(f"watermark: font {font} is not a file")
        if not _covers((str(file), 0), text):
            raise UsageError(f"watermark: font {font} lacks characters of {text!r}")
        return str(file), 0
    for candidate in (("", 0), *_system_fonts()):
        if _covers(candidate, text):
            return candidate
    raise UsageError(
        f"watermark: no font with the characters of {text!r} found; install one (Debian: "
        f"{PACKAGE}) or give font=FILE"
    )


def _system_fonts() -> list[FontFile]:
    found = [(path, face) for path, face in KNOWN_FONTS if Path(path).is_file()]
    if shutil.which("fc-list"):
        listed = subprocess.run(
            ["fc-list", ":lang=zh-cn", "file"], capture_output=True, text=True, check=False
        ).stdout
        found += [(line.rstrip(": "), 0) for line in sorted(listed.splitlines()) if line.strip()]
    return found


def _covers(font: FontFile, text: str) -> bool:
    """Whether no character of the text is drawn as the box that stands for a missing one."""
    face = _load(font, 32)
    if face is None:
        return False
    missing = bytes(face.getmask(_NO_CHARACTER))
    return all(bytes(face.getmask(character)) != missing for character in set(text) - {" "})


def _load(font: FontFile, size: int) -> Font | None:
    from PIL import ImageFont

    file, face = font
    try:
        if not file:
            return ImageFont.load_default(size)
        return ImageFont.truetype(file, size, index=face)
    except OSError:
        return None


@lru_cache(maxsize=8)
def _alpha(text: str, font: FontFile, height: int, width: int) -> npt.NDArray[np.float32]:
    from PIL import Image, ImageDraw

    face = _load(font, font_size(min(height, width)))
    assert face is not None
    layer = Image.new("L", (width, height), 0)
    ImageDraw.Draw(layer).text((LEFT * width, TOP * height), text, fill=255, font=face)
    return (np.asarray(layer) * (OPACITY / 255)).astype(np.float32)
