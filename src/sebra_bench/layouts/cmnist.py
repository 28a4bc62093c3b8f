"""Colored MNIST: each digit class is painted mostly in one colour."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.files import images_in, require_folder, subfolders
from sebra.samples.layouts import layout
from sebra.samples.table import Attribute, ImageArray, IntArray, Samples

CLASSES = tuple(str(digit) for digit in range(10))
COLOURS = {
    "red": (230, 30, 40),
    "green": (50, 170, 60),
    "blue": (40, 70, 220),
    "yellow": (250, 225, 40),
    "magenta": (230, 40, 220),
    "cyan": (60, 220, 230),
    "orange": (245, 130, 30),
    "purple": (130, 50, 180),
    "white": (235, 235, 235),
    "brown": (140, 85, 40),
}
JITTER = 10.0  # standard deviation of a picture's colour around the named one
VAL, VAL_SHARE = 5_000, 12  # the last 5,000 of the training file, of a small one a twelfth
_CHUNK = 4096
_SIDE = 28
_GZIP_MAGIC = b"\x1f\x8b"

Grey = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class CmnistOptions:
    """`ratio`: share of training images in their class's colour; `n`: training images, 0 = all."""

    ratio: float = 0.95
    n: int = 0
    seed: int = 0


@dataclass(frozen=True)
class _Digits:
    """One file's worth of plain digits."""

    ids: list[str]
    grey: Grey
    labels: IntArray


@layout(
    "cmnist",
    "Colored MNIST, painted from the standard IDX files or from PNG folders",
    CmnistOptions,
)
def read(path: Path, options: CmnistOptions) -> Samples:
    """Digit d is aligned with colour d; val and test are painted at random."""
    if not 0 < options.ratio <= 1:
        raise UsageError(f"cmnist: ratio must be above 0 and at most 1, not {options.ratio}")
    if options.n < 0 or options.seed < 0:
        raise UsageError("cmnist: n and seed must not be negative")
    root = require_folder(path, "cmnist")
    train, test = _read_digits(root, "train", "train"), _read_digits(root, "t10k", "test")
    first_val = len(train.ids) - min(VAL, len(train.ids) // VAL_SHARE)
    used = min(options.n or first_val, first_val)
    keep = np.r_[0:used, first_val : len(train.ids)]
    split = np.repeat([0, 1, 2], [used, len(keep) - used, len(test.ids)]).astype(np.int8)
    labels = np.concatenate([train.labels[keep], test.labels])
    rng = np.random.default_rng([options.seed, 10])
    colours = _choose_colours(labels, split == 0, options.ratio, rng)
    pixels = _paint(np.concatenate([train.grey[keep], test.grey]), colours, rng)
    return Samples(
        ids=np.array([train.ids[i] for i in keep] + test.ids, dtype=object),
        labels=labels,
        classes=CLASSES,
        split=split,
        content=ImageArray(pixels, np.arange(len(labels), dtype=np.int64)),
        attributes={
            "colour": Attribute("colour", colours, tuple(COLOURS), aligned=tuple(range(10)))
        },
        name="cmnist",
    )


def _choose_colours(
    labels: IntArray, biased: npt.NDArray[np.bool_], ratio: float, rng: np.random.Generator
) -> IntArray:
    """Colour codes: exactly `ratio` of each class's biased images in its own, others any."""
    colours = rng.integers(0, len(COLOURS), len(labels))
    for digit in range(len(CLASSES)):
        rows = rng.permutation(np.flatnonzero(biased & (labels == digit)))
        aligned = round(ratio * len(rows))
        other = rng.integers(1, len(COLOURS), len(rows) - aligned)
        colours[rows[:aligned]] = digit
        colours[rows[aligned:]] = (digit + other) % len(COLOURS)
    return colours.astype(np.int64)


def _paint(grey: Grey, colours: IntArray, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The digit in its colour on black, each picture's colour a little off the named one."""
    palette = np.array(list(COLOURS.values()), dtype=np.float32)
    exact = palette[colours] + JITTER * rng.standard_normal((len(grey), 3), dtype=np.float32)
    tints = np.clip(exact, 0, 255).astype(np.uint16)
    pixels = np.empty((*grey.shape, 3), np.uint8)
    for start in range(0, len(grey), _CHUNK):
        part = slice(start, start + _CHUNK)
        pixels[part] = grey[part, ..., None].astype(np.uint16) * tints[part, None, None] // 255
    return pixels


def _read_digits(root: Path, prefix: str, folder: str) -> _Digits:
    images, labels = _idx_file(root, f"{prefix}-images"), _idx_file(root, f"{prefix}-labels")
    if images is not None and labels is not None:
        grey, codes = _read_idx(images, 3), _read_idx(labels, 1)
        if len(grey) != len(codes) or grey.shape[1:] != (_SIDE, _SIDE):
            raise UsageError(f"cmnist: {images} {grey.shape} and {labels} {codes.shape} do not fit")
        ids = [f"{folder}/{row:05d}" for row in range(len(codes))]
        return _Digits(ids, grey, codes.astype(np.int64))
    if (root / folder).is_dir():
        return _read_pictures(root, folder)
    raise UsageError(
        f"cmnist: neither {prefix}-images-idx3-ubyte(.gz) and its labels nor {folder}/ in {root}"
    )


def _idx_file(root: Path, start: str) -> Path | None:
    """The file in the folder (or in MNIST/raw below it), with or without `.gz`."""
    for where in (root, root / "MNIST" / "raw"):
        for file in sorted(where.glob(f"{start}*idx?-ubyte*")):
            return file
    return None


def _read_idx(file: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """The published format: magic 0 0 8 d, d big-endian sizes, bytes."""
    try:
        data = file.read_bytes()
        data = gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cmnist: {file} cannot be read ({error})") from error
    start = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(data[4:start], dtype=">i4"))
    if data[:4] != bytes([0, 0, 8, dimensions]) or len(data) != start + math.prod(shape):
        raise UsageError(f"cmnist: {file} is not an IDX file of {dimensions} dimensions")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _read_pictures(root: Path, folder: str) -> _Digits:
    """PNG folders, one per digit; shuffled, as the IDX files are not sorted by digit either."""
    from PIL import Image

    named = [
        (f"{folder}/{digit}/{name}", int(digit))
        for digit in subfolders(root / folder)
        if digit in CLASSES
        for name in images_in(root / folder / digit)
    ]
    if not named:
        raise UsageError(f"cmnist: no images in {root / folder}/0 to {root / folder}/9")
    order = np.random.default_rng(0).permutation(len(named))
    grey = np.empty((len(named), _SIDE, _SIDE), np.uint8)
    for row, source in enumerate(order):
        file = root / named[source][0]
        try:
            with Image.open(file) as image:
                small = image.convert("L").resize((_SIDE, _SIDE))
        except (OSError, SyntaxError, ValueError) as error:
            raise UsageError(f"cmnist: {file} cannot be read ({error})") from error
        grey[row] = np.asarray(small)
    labels = np.array([named[i][1] for i in order], dtype=np.int64)
    return _Digits([named[i][0] for i in order], grey, labels)
