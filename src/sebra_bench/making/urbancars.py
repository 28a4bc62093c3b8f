"""Composes UrbanCars from a person's own pictures, in the published geometry and tree.

A scene fills the picture; a small object stands at its right edge, a car at its centre, over the
object. In training, scene and object go with the car in a given share of its pictures each;
validation and test are balanced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import images_under, require_folder
from sebra.samples.table import SPLITS
from sebra_bench.layouts.urbancars import WORDS
from sebra_bench.making.cutouts import Cutout, cutouts_under, paste, square

CAR_SCALE, CAR_CENTRE = 0.5, (0.5, 0.5)  # of the side; (row, column)
OBJECT_SCALE, OBJECT_CENTRE = 0.25, (0.5, 0.875)
BALANCED = 0.5
JPEG_QUALITY = 95
MIN_SIZE = 16

Progress = Callable[[int, int], None]
Group = tuple[str, str, str]  # car, background, object
T = TypeVar("T")


@dataclass(frozen=True)
class Recipe:
    """What to build. `cars`, `backgrounds` and `objects` each hold `urban/` and `country/`.

    `counts` are pictures per class in train, val and test; `reuse` allows a source picture more
    than once within a split (never in two splits).
    """

    cars: Path
    backgrounds: Path
    objects: Path
    out: Path
    size: int = 256
    counts: tuple[int, int, int] = (4000, 500, 500)
    background_ratio: float = 0.95
    object_ratio: float = 0.95
    seed: int = 0
    reuse: bool = False


def make_urbancars(recipe: Recipe, progress: Progress | None = None) -> dict[str, Any]:
    """Writes the tree that `urbancars:OUT` reads; returns the number of pictures by group."""
    _check(recipe)
    plans = {split: group_counts(recipe, split) for split in SPLITS}
    rng = np.random.default_rng(recipe.seed)
    cars = _stock(recipe, plans, "cars", cutouts_under, rng)
    scenes = _stock(recipe, plans, "backgrounds", images_under, rng)
    things = _stock(recipe, plans, "objects", cutouts_under, rng)
    total = sum(sum(plan.values()) for plan in plans.values())
    done = 0
    for split, plan in plans.items():
        for group, count in plan.items():
            folder = _folder(recipe, split, group)
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                car = cars[split, group[0]].pop()
                scene = scenes[split, group[1]].pop()
                thing = things[split, group[2]].pop()
                _compose(car, scene, thing, recipe.size, folder / f"{i:03d}.jpg")
                done += 1
                if progress is not None:
                    progress(done, total)
    return {
        "out": str(recipe.out),
        "pictures": total,
        "groups": {s: {_name(g): n for g, n in plan.items()} for s, plan in plans.items()},
    }


def group_counts(recipe: Recipe, split: str) -> dict[Group, int]:
    """Pictures of each group: int(share x pictures per class), at least 1 where it has a share.

    Shares are exact decimals: 0.9 x 0.1 of 1,000 are 90, which floats would make 89.
    """
    ratios = [BALANCED, BALANCED]
    if split == "train":
        ratios = [recipe.background_ratio, recipe.object_ratio]
    exact = [Fraction(str(ratio)) for ratio in ratios]
    n = recipe.counts[SPLITS.index(split)]
    counts: dict[Group, int] = {}
    for group in product(WORDS, repeat=3):
        share = Fraction(n)
        for word, ratio in zip(group[1:], exact, strict=True):
            share *= ratio if word == group[0] else 1 - ratio
        counts[group[0], group[1], group[2]] = max(int(share), 1 if share > 0 else 0)
    return counts


def _compose(car: Cutout, scene: Path, thing: Cutout, size: int, file: Path) -> None:
    picture = square(scene, size)
    paste(picture, thing, OBJECT_SCALE, OBJECT_CENTRE)
    paste(picture, car, CAR_SCALE, CAR_CENTRE)
    picture.save(file, quality=JPEG_QUALITY)


def _stock(
    recipe: Recipe,
    plans: dict[str, dict[Group, int]],
    kind: str,
    find: Callable[[Path], list[T]],
    rng: np.random.Generator,
) -> dict[tuple[str, str], list[T]]:
    """As many sources as each split and word needs, drawn at random; none is in two splits."""
    place = ("cars", "backgrounds", "objects").index(kind)
    root = require_folder(getattr(recipe, kind), f"--{kind}")
    stock: dict[tuple[str, str], list[T]] = {}
    for word in WORDS:
        found = find(require_folder(root / word, f"--{kind}"))
        order = [found[i] for i in rng.permutation(len(found))]
        needed = [
            sum(count for group, count in plans[split].items() if group[place] == word)
            for split in SPLITS
        ]
        start = 0
        sizes = _sizes(len(order), needed, recipe.reuse, f"--{kind}: {root / word}")
        for split, count, size in zip(SPLITS, needed, sizes, strict=True):
            part = order[start : start + size]
            start += size
            stock[split, word] = [part[i % size] for i in range(count)]
    return stock


def _sizes(available: int, needed: list[int], reuse: bool, where: str) -> list[int]:
    """How many of the sources each split gets: its need, or its share where they are too few."""
    if available >= sum(needed):
        return needed
    least = sum(count > 0 for count in needed)
    if not reuse or available < least:
        wanted = least if reuse else sum(needed)
        advice = "give more" if reuse else "give more, lower --counts or allow --reuse"
        raise UsageError(f"{where} has {available} pictures, needs {wanted}; {advice}")
    sizes = [max(1, available * count // sum(needed)) if count else 0 for count in needed]
    while sum(sizes) > available:
        sizes[int(np.argmax(sizes))] -= 1
    return sizes


def _folder(recipe: Recipe, split: str, group: Group) -> Path:
    ratios = (BALANCED, BALANCED)
    if split == "train":
        ratios = (recipe.background_ratio, recipe.object_ratio)
    version = f"bg-{ratios[0]}_co_occur_obj-{ratios[1]}"
    return recipe.out / version / split / _name(group)


def _name(group: Group) -> str:
    return f"obj-{group[0]}_bg-{group[1]}_co_occur_obj-{group[2]}"


def _check(recipe: Recipe) -> None:
    if recipe.size < MIN_SIZE:
        raise UsageError(f"--size: must be at least {MIN_SIZE}, not {recipe.size}")
    if min(recipe.counts) < 0 or recipe.counts[0] < 2:
        raise UsageError("--counts: needs at least 2 training pictures per class, none negative")
    for option, ratio in (
        ("--ratio", recipe.background_ratio),
        ("--object-ratio", recipe.object_ratio),
    ):
        if not BALANCED <= ratio <= 1:
            raise UsageError(f"{option}: must be between {BALANCED} and 1, not {ratio}")
    if recipe.out.exists() and (not recipe.out.is_dir() or any(recipe.out.iterdir())):
        raise UsageError(f"--out: {recipe.out} exists and is not empty; give a new folder")
