"""Samples that show the same: pictures also where one was resized or saved again.

Pictures are the same whose perceptual hashes nearly agree and whose small copies do; texts where
they differ in case and spaces alone; rows of numbers to the last bit.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.samples.picture import decode_image, to_square
from sebra.samples.table import Fault, FeatureArray, ImageArray, ImageFiles, Samples, Texts

Array = npt.NDArray[Any]
Groups = list[list[int]]
SIDE = 32  # pixels of the small copies that are compared
LOW = 8  # frequencies of a hash along each side
APART = 3  # bits of 64 by which hashes of copies may differ
BANDS = 4  # of a hash: of more bands than bits that differ one is the same
SAME = 0.985  # correlation from which small copies show the same picture
FLAT = 4.0  # of 255: spread of a picture that shows nothing, of which all hashes are chance
MOST_COMPARED = 200  # others of the same band that a picture is compared with


def small_copies(samples: Samples) -> tuple[Array | None, list[Fault]]:
    """Every picture in small, and those that cannot be read; (None, []) without pictures."""
    content = samples.content
    if not isinstance(content, (ImageFiles, ImageArray)):
        return None, []

    def read(row: int) -> tuple[Array, str | None]:
        try:
            if isinstance(content, ImageFiles):
                return decode_image(content.paths[row], SIDE), None
            from PIL import Image

            picture = Image.fromarray(content.pixels[content.rows[row]])
            return to_square(picture, SIDE), None
        except ValueError as error:
            return np.zeros((SIDE, SIDE, 3), np.uint8), str(error)

    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("ignore")  # what a decoder merely dislikes is no fault
        pairs = list(pool.map(read, range(len(samples)), chunksize=64))
    faults = [
        Fault(str(name), reason)
        for name, (_, reason) in zip(samples.ids, pairs, strict=True)
        if reason is not None
    ]
    return np.stack([picture for picture, _ in pairs]), faults


def copies(samples: Samples, small: Array | None) -> Groups:
    """Groups of rows that show the same: pictures by their small copies, others to the letter."""
    content = samples.content
    if small is not None:
        return _same_pictures(small)
    places: dict[Any, list[int]] = defaultdict(list)
    for row in range(len(samples)):
        if isinstance(content, Texts):
            second = "" if content.second is None else content.second[row]
            key: Any = tuple(" ".join(t.casefold().split()) for t in (content.first[row], second))
        else:
            assert isinstance(content, FeatureArray)
            key = content.values[content.rows[row]].tobytes()
        places[key].append(row)
    return [rows for rows in places.values() if len(rows) > 1]


def _same_pictures(small: Array) -> Groups:
    grey = small.astype(np.float32).mean(axis=3)
    telling = np.flatnonzero(grey.std(axis=(1, 2)) > FLAT)
    flat = grey[telling].reshape(len(telling), -1)
    flat -= flat.mean(axis=1, keepdims=True)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    bits = hashes(grey[telling])
    parent = list(range(len(telling)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in _candidates(bits):
        if np.count_nonzero(bits[i] != bits[j]) <= APART and flat[i] @ flat[j] >= SAME:
            parent[max(root(i), root(j))] = min(root(i), root(j))
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(telling)):
        groups[root(i)].append(int(telling[i]))
    return [rows for rows in groups.values() if len(rows) > 1]


def hashes(grey: Array) -> Array:
    """n x 64 bits: which of the lowest frequencies of a picture are above their median."""
    from scipy.fft import dctn

    low = dctn(grey, axes=(1, 2))[:, :LOW, :LOW].reshape(len(grey), -1)
    return np.asarray(low > np.median(low[:, 1:], axis=1, keepdims=True))


def _candidates(bits: Array) -> Iterator[tuple[int, int]]:
    """Pairs that share a band of their hash; of very many only the next ones."""
    for band in np.split(np.packbits(bits, axis=1), BANDS, axis=1):
        places: dict[bytes, list[int]] = defaultdict(list)
        for i, key in enumerate(band):
            places[key.tobytes()].append(i)
        for rows in places.values():
            for k, i in enumerate(rows):
                yield from ((i, j) for j in rows[k + 1 : k + 1 + MOST_COMPARED])
