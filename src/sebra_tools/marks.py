"""A mark: at one place the pictures of one side show nearly the same, those of the other do not.

A label, a date or a frame is more than "yellower at the bottom right": it hardly varies from
picture to picture. Where both sides of a pattern differ, that part of each picture is compared with
what the others of the side that varies least show there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from sebra.samples.table import ImageArray, Samples
from sebra.workflows.prepared import Prepared
from sebra_tools.places import place_of
from sebra_tools.vocabularies import LARGEST, place_name
from sebra_tools.words import MARK, Family, sides_of

Array = npt.NDArray[Any]
EACH_SIDE = 200  # pictures of a class and side that are compared, at most
MOST_CLASSES = 12
FINE = 4  # along each side of a cell of the map: points that are compared
FEWEST = 4  # pictures on a side
HOT = 0.5  # of a map: what may belong to the mark
CONSTANT = 0.6  # of the other side's spread, which a mark stays below
LARGEST_SHARE = 0.5  # of a picture; more is no mark
AROUND = "around the border"


def words_of_marks(prepared: Prepared, part: Samples, follows: Array) -> Iterator[Family]:
    """How far each picture shows what its class's marked side has in common."""
    content = prepared._read("train")[1]
    if not isinstance(content, ImageArray):
        return
    values = np.zeros((len(part), 2))
    known = np.zeros(len(part), dtype=bool)
    places = set()
    for c in range(min(len(part.classes), MOST_CLASSES)):
        sides = [
            np.random.default_rng(0).permutation(rows)[:EACH_SIDE]
            for rows in sides_of(follows, part.labels, c)
        ]
        found = place_of(content, *sides)
        if found is None:
            continue
        mask = warm_part(found[0])
        place = _named(mask)
        if place is None:
            continue
        inside, outside = ([_points(content, rows, of) for rows in sides] for of in (mask, ~mask))
        likeness = likeness_of(inside, outside)
        if likeness is None:
            continue
        places.add(place)
        marked, by_side = likeness
        for rows, found_values in zip(sides, by_side, strict=True):
            values[rows, marked] = found_values
            known[rows] = True
    if places:
        where = places.pop() if len(places) == 1 else "at one place"
        where = AROUND if AROUND in places else where  # a side of a frame may be all that is warm
        named = [(f"the same mark {where}", f"nothing alike {where}"),
                 (f"the mark of others {where}", f"no mark {where}")]  # fmt: skip
        yield Family(MARK, values, named, known=known)


def warm_part(heat: Array) -> Array:
    """The connected warm cells of a map with its peak."""
    from scipy.ndimage import label

    parts, _ = label(heat >= HOT * heat.max())
    return np.asarray(parts == parts.flat[heat.argmax()])


def likeness_of(points: list[Array], outside: list[Array]) -> tuple[int, list[Array]] | None:
    """Which of two sides (samples x points) shows a mark, and how alike to it every sample is.

    None where neither side varies clearly less than the other, or does so outside as well: dark
    pictures vary less everywhere. A sample of the marked side is not compared with itself.
    """
    if min(len(p) for p in points) < FEWEST:
        return None
    # By quartiles and medians, for some samples are on the wrong side.
    spread, around = (
        [float(np.diff(np.quantile(p, (0.25, 0.75), axis=0), axis=0).mean()) for p in part]
        for part in (points, outside)
    )
    marked = int(np.argmin(spread))
    usual = min(1.0, around[marked] / max(around[1 - marked], 1e-9))
    if spread[marked] > CONSTANT * usual * spread[1 - marked]:
        return None
    of = points[marked]
    others = [np.median(np.delete(of, i, axis=0), axis=0) for i in range(len(of))]
    centre = [np.median(of, axis=0) if k != marked else np.stack(others) for k in range(2)]
    apart = [np.abs(p - u).mean(axis=1) for p, u in zip(points, centre, strict=True)]
    return marked, [-np.log(a + 1.0) for a in apart]


def _named(mask: Array) -> str | None:
    rows, columns = np.nonzero(mask)
    grid = len(mask)
    if mask.mean() > LARGEST_SHARE:
        return None
    box = (columns.min() / grid, rows.min() / grid, (columns.max() + 1) / grid,
           (rows.max() + 1) / grid)  # fmt: skip
    if min(box[2] - box[0], box[3] - box[1]) > LARGEST:
        return AROUND
    return place_name(box).removesuffix(" it")


def _points(content: ImageArray, rows: Array, mask: Array) -> Array:
    """Pictures at the cells of a mask, as samples x points."""
    size = FINE * len(mask)
    fine = np.kron(mask, np.ones((FINE, FINE), dtype=bool))
    out = []
    for some in np.array_split(rows, range(64, len(rows), 64)):
        pixels = np.ascontiguousarray(content.pixels[content.rows[some]])
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
        x = F.interpolate(x, size=(size, size), mode="bilinear", antialias=True)
        out.append(x.numpy()[:, :, fine].reshape(len(some), -1))
    return np.concatenate(out)
