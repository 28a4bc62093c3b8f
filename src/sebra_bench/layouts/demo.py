"""The built-in data set: boats and planes with known biases, drawn on the spot.

A network is to tell boats from planes. In training, boats are mostly at sea with a buoy beside
them and planes mostly over land with a balloon, so both cues predict the class nearly as well as
the vehicle does, and are easier to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.layouts import layout
from sebra.samples.table import SPLITS, Attribute, ImageArray, IntArray, Samples
from sebra_bench.layouts.demo_pictures import draw

CLASSES = ("boat", "plane")
# Strongest first; the first level of each goes with boats, the second with planes.
BIASES = {
    "background": ("sea", "land"),
    "companion": ("buoy", "balloon"),
    "light": ("sun", "moon"),
}
VAL_SHARE, TEST_SHARE = 5, 2  # n // 5 and n // 2 images
LEAST_IN_GROUP = 2


@dataclass(frozen=True)
class DemoOptions:
    """`biases`: how many attributes follow the class; `strength`: in what share of training."""

    biases: int = 2
    strength: float = 0.95
    n: int = 2000
    seed: int = 0


@layout(
    "demo",
    "the built-in set of generated pictures with known biases; needs no download",
    DemoOptions,
    needs_path=False,
)
def read(path: Path, options: DemoOptions) -> Samples:
    """Draws the set; val and test hold every group equally often."""
    return _drawn(options)


@lru_cache(maxsize=2)  # a report reads the set again that was ranked: a second of drawing
def _drawn(options: DemoOptions) -> Samples:
    _check(options)
    names = list(BIASES)[: max(options.biases, 2)]
    known = names[:1] if options.biases == 1 else names
    rng = np.random.default_rng([options.seed, options.biases])
    parts = [_facts(split, names, options, rng) for split in SPLITS]
    facts = np.concatenate(parts)
    split = np.repeat(np.arange(len(SPLITS), dtype=np.int8), [len(p) for p in parts])
    return Samples(
        ids=np.array(list(_ids(parts)), dtype=object),
        labels=facts[:, 0],
        classes=CLASSES,
        split=split,
        content=ImageArray(draw(facts, rng), np.arange(len(facts), dtype=np.int64)),
        attributes={
            name: Attribute(name, facts[:, 1 + k], BIASES[name], aligned=(0, 1))
            for k, name in enumerate(known)
        },
        name="demo",
        mode="features",  # a network from scratch tells its shapes at once and takes no shortcut
    )


def group_sizes(n: int, strengths: list[float]) -> dict[tuple[bool, ...], int]:
    """Images of one class per combination of aligned attributes; the rest goes to all-aligned.

    For n = 1000 and 95 % twice: 902 / 48 / 48 / 2, UrbanCars' structure.
    """
    sizes: dict[tuple[bool, ...], int] = {}
    for aligned in product((True, False), repeat=len(strengths)):
        share = np.prod([s if a else 1 - s for s, a in zip(strengths, aligned, strict=True)])
        sizes[aligned] = max(LEAST_IN_GROUP, round(round(n * float(share), 6)))
    everything = (True,) * len(strengths)
    sizes[everything] += n - sum(sizes.values())
    if sizes[everything] < LEAST_IN_GROUP:
        raise UsageError(f"demo: n={2 * n} is too few for these biases, take at least 100")
    return sizes


def _facts(
    split: str, names: list[str], options: DemoOptions, rng: np.random.Generator
) -> IntArray:
    """One row per image: class, then the value of each attribute; shuffled."""
    if split == "train":
        strengths = [options.strength if k < options.biases else 0.5 for k in range(len(names))]
        sizes = group_sizes(options.n // 2, strengths)
    else:
        total = options.n // (VAL_SHARE if split == "val" else TEST_SHARE)
        each = max(1, total // 2 ** (1 + len(names)))
        sizes = dict.fromkeys(product((True, False), repeat=len(names)), each)
    rows = [
        [label, *(label if a else 1 - label for a in aligned)]
        for label in range(len(CLASSES))
        for aligned, size in sizes.items()
        for _ in range(size)
    ]
    return rng.permutation(np.array(rows, dtype=np.int64))


def _ids(parts: list[npt.NDArray[np.int64]]) -> Iterator[str]:
    for split, part in zip(SPLITS, parts, strict=True):
        for number, label in enumerate(part[:, 0]):
            yield f"{split}/{CLASSES[label]}/{number:04d}"


def _check(options: DemoOptions) -> None:
    if options.biases not in range(len(BIASES) + 1):
        raise UsageError(f"demo: biases must be 0 to {len(BIASES)}, not {options.biases}")
    if not 0.5 <= options.strength < 1:
        raise UsageError(f"demo: strength must be from 0.5 to below 1, not {options.strength}")
    if not 100 <= options.n <= 100_000:
        raise UsageError(f"demo: n must be 100 to 100000, not {options.n}")
    if options.seed < 0:
        raise UsageError(f"demo: seed must not be negative, not {options.seed}")
