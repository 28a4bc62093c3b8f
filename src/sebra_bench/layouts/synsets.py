"""Folders of a copy of ImageNet: `train/` and `val/` with one folder per synset (`n02971356`)."""

from __future__ import annotations

import re
from pathlib import Path

from sebra.errors import UsageError
from sebra.samples.files import images_in, require_folder, subfolders

_SYNSET = re.compile(r"n\d{8}")


def is_synset(name: str) -> bool:
    return _SYNSET.fullmatch(name) is not None


def synsets_in(folder: Path, layout: str) -> list[str]:
    """The synset folders of a split, sorted: the order of the published class numbers."""
    where = require_folder(folder, layout)
    found = [name for name in subfolders(where) if is_synset(name)]
    if found:
        return found
    if images_in(where):
        raise UsageError(
            f"{layout}: {where} holds images in one heap; sort them into synset folders first "
            "(the archive's own val/ needs this)"
        )
    raise UsageError(f"{layout}: {where} has no synset folder (a name such as n02971356)")


def images_of(folder: Path, synset: str, layout: str, name: str = "") -> list[Path]:
    """The images of one synset in a split; a synset without any is told."""
    place = folder / synset
    what = f"{synset} ({name})" if name else synset
    if not place.is_dir():
        raise UsageError(f"{layout}: {folder} has no folder {what}")
    images = [place / image for image in images_in(place)]
    if not images:
        raise UsageError(f"{layout}: {place} has no images, expected those of {what}")
    return images
