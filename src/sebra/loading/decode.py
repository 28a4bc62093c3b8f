"""Decodes every image once, in parallel, into a memory map of equal squares."""

from __future__ import annotations

import math
import os
import statistics
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.loading.cache import PASSING, digest, user_cache
from sebra.samples.fingerprint import stamp, stamped
from sebra.samples.picture import Unreadable, decode_image, image_side, to_square
from sebra.samples.table import Fault, ImageArray, ImageFiles, Samples
from sebra.samples.validate import require_trainable

Progress = Callable[[int, int], None]
Pixels = npt.NDArray[np.uint8]

FORMAT_VERSION = 1  # raise it when the same file would give other pixels
MIN_SIZE, MAX_SIZE, SIZE_STEP = 32, 224, 32
_LOOKED_AT = 64
_CHUNK = 32


def load_images(
    samples: Samples, size: int | None = None, progress: Progress | None = None
) -> tuple[Samples, ImageArray]:
    """Every image as a `size` x `size` square of uint8 RGB, from the cache where it is there.

    Images are squashed to the square, so nothing at a border is lost. `size=None` is `auto_size`.
    Returns the samples without those that could not be read (they are in `faults`) and the
    pixels: image `i` of the returned samples is `pixels[rows[i]]`. `progress(done, total)` is
    called while decoding. More than half unreadable is a `UsageError`.
    """
    size = auto_size(samples) if size is None else size
    if size < 1:
        raise UsageError(f"image size must be at least 1, not {size}")
    content = samples.content
    if isinstance(content, ImageArray):
        resized = _resize_array(content, size, progress)
        return replace(samples, content=resized), resized
    if not isinstance(content, ImageFiles):
        raise UsageError(f"{samples.source}: holds {samples.kind}, not images")
    stamps = stamped(content.paths)
    pixels, meta = user_cache().array(
        "images",
        [FORMAT_VERSION, size, *map(str, content.paths), *stamps],
        (len(content.paths), size, size, 3),
        np.uint8,
        lambda out: _decode_all(content.paths, stamps, size, out, progress),
        lambda pixels, meta: _faults(meta, len(pixels)),
    )
    return _quarantine(samples, pixels, _faults(meta, len(pixels)))


def _faults(meta: dict[str, Any], images: int) -> list[tuple[int, str]]:
    return [(range(images)[row], str(reason)) for row, reason in meta["faults"]]


def auto_size(samples: Samples) -> int:
    """The side to decode to: an array's own; of files the usual longer side, 32 to 224."""
    content = samples.content
    if isinstance(content, ImageArray):
        return int(min(content.pixels.shape[1:3]))
    if not isinstance(content, ImageFiles):
        raise UsageError(f"{samples.source}: holds {samples.kind}, not images")
    # Chosen by name and readable, so that a damaged image among them changes nothing.
    keys = np.array([zlib.crc32(str(name).encode("utf-8")) for name in samples.ids.tolist()])
    sides: list[int] = []
    for row in np.argsort(keys, kind="stable").tolist():
        side = image_side(content.paths[row])
        sides += [] if side is None else [side]
        if len(sides) == _LOOKED_AT:
            break
    if not sides:
        return MAX_SIZE
    side = math.ceil(statistics.median(sides) / SIZE_STEP) * SIZE_STEP
    return min(max(side, MIN_SIZE), MAX_SIZE)


def workers() -> int:
    """How many threads may run at once on this machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _decode_all(
    paths: Sequence[Path], stamps: list[str], size: int, out: Pixels, progress: Progress | None
) -> dict[str, Any]:
    """Fills `out`; the meta data has row and reason of the images that could not be read.

    An image that is not the one `stamps` were taken of is left out: the cache would go on giving
    it out under the old one's name.
    """

    def decode(start: int) -> tuple[int, list[tuple[int, str, bool]]]:
        faults: list[tuple[int, str, bool]] = []
        stop = min(start + _CHUNK, len(paths))
        for row in range(start, stop):
            try:
                out[row] = decode_image(paths[row], size)
                if stamp(paths[row]) != stamps[row]:
                    raise Unreadable("changed while it was read", passing=True)
            except Unreadable as error:
                out[row] = 0
                passing = error.passing or stamp(paths[row]) != stamps[row]
                faults.append((row, str(error), passing))
        return stop - start, faults

    found = sorted(_in_threads(decode, len(paths), progress))
    faults = [(row, reason) for row, reason, _ in found]
    return {"faults": faults, PASSING: any(passing for *_, passing in found)}


def _in_threads(
    work: Callable[[int], tuple[int, list[Any]]], total: int, progress: Progress | None
) -> list[Any]:
    """Runs `work(start)` for every chunk; an interrupt does not wait for those not begun."""
    from PIL import Image

    results: list[Any] = []
    done = 0
    pool = ThreadPoolExecutor(workers())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS decides
        warnings.simplefilter("ignore", UserWarning)  # broken meta data is no fault of the pixels
        try:
            jobs = [pool.submit(work, start) for start in range(0, total, _CHUNK)]
            for job in as_completed(jobs):
                count, found = job.result()
                results += found
                done += count
                if progress is not None:
                    progress(done, total)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return results


def _quarantine(
    samples: Samples, pixels: Pixels, faults: list[tuple[int, str]]
) -> tuple[Samples, ImageArray]:
    images = ImageArray(pixels, np.arange(len(samples), dtype=np.int64))
    if not faults:
        return replace(samples, content=images), images
    if 2 * len(faults) > len(samples):
        row, reason = faults[0]
        raise UsageError(
            f"{samples.source}: {len(faults)} of {len(samples)} images cannot be read, "
            f"for example {samples.ids[row]} ({reason})"
        )
    bad = [Fault(str(samples.ids[row]), reason) for row, reason in faults]
    kept = replace(samples, content=images).without(bad)
    if len(samples.rows("train")):  # a held-out split has nothing to train on
        require_trainable(kept)
    assert isinstance(kept.content, ImageArray)
    return kept, kept.content


def _resize_array(content: ImageArray, size: int, progress: Progress | None) -> ImageArray:
    from PIL import Image

    rows = content.rows
    if content.pixels.shape[1:3] == (size, size):
        return content

    def fill(out: Pixels) -> dict[str, Any]:
        def resize(start: int) -> tuple[int, list[Any]]:
            chunk = rows[start : start + _CHUNK]
            for i, row in enumerate(chunk):
                image = Image.fromarray(np.ascontiguousarray(content.pixels[row]))
                out[start + i] = to_square(image, size)
            return len(chunk), []

        _in_threads(resize, len(rows), progress)
        return {}

    key: list[str | int | bytes] = [FORMAT_VERSION, size, str(content.pixels.shape[1:])]
    for start in range(0, len(rows), 4096):
        key.append(digest([content.pixels[rows[start : start + 4096]].tobytes()]))
    pixels, _ = user_cache().array("resized", key, (len(rows), size, size, 3), np.uint8, fill)
    return ImageArray(pixels, np.arange(len(rows), dtype=np.int64))
