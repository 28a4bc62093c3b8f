"""Who carries a planted nuisance: shares per class in training, none of the class in the test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.table import Samples

SCHEMES = ("all", "two", "one")
NONE = "none"
RARE = 5  # with a ratio of 1:5 every second class keeps a fifth of its training samples


@dataclass(frozen=True)
class Scheme:
    """How a nuisance goes with the classes of the training samples.

    `all`: every class has a variant of its own (as far as there are enough), carried by `share`
    of its samples; the others carry one of the other variants. With two classes: one carries the
    nuisance at `share`, the other at 1 - `share`.
    `two`: one class carries it at `share`, a second at 1 - `share`, half of all others carry it.
    `one`: one class carries it at `share`, no other sample does.

    The first of `order` is the class that carries it, the second its counterpart. `rare` thins
    the second, fourth, … of them to a fifth. In the test split every variant (and its absence)
    is equally frequent in every class.
    """

    name: str = "all"
    share: float = 0.95
    rare: bool = False

    def __post_init__(self) -> None:
        if self.name not in SCHEMES:
            raise UsageError(f"--scheme: one of {', '.join(SCHEMES)}, not {self.name!r}")
        if not 0.5 <= self.share < 1:
            raise UsageError(f"--share: {self.share} is not from 0.5 to below 1")


def class_order(classes: int, seed: int) -> list[int]:
    """The classes by the part they play: the first carries the nuisance."""
    return [int(c) for c in np.random.default_rng([seed, 1]).permutation(classes)]


def telling_classes(scheme: Scheme, order: list[int]) -> list[int]:
    """Classes in which carrying or lacking the nuisance is usual, so that others break it."""
    return sorted(order[:2] if scheme.name == "two" else order)


def thinned(samples: Samples, scheme: Scheme, order: list[int], seed: int) -> Samples:
    """The samples that stay: all, or a fifth of the training samples of every second class."""
    if not scheme.rare:
        return samples
    rng = np.random.default_rng([seed, 2])
    keep = np.ones(len(samples), dtype=bool)
    for c in order[1::2]:
        rows = rng.permutation(_of_class(samples, "train", c))
        keep[rows[max(2, round(len(rows) / RARE)) :]] = False
    return samples.take(np.flatnonzero(keep))


def assign(
    samples: Samples, scheme: Scheme, order: list[int], variants: tuple[str, ...], seed: int
) -> npt.NDArray[np.object_]:
    """Of each sample the variant that it carries, or `none`."""
    rng = np.random.default_rng([seed, 4])
    levels, usual, shares = _plan(scheme, order, variants)
    marks = np.full(len(samples), NONE, dtype=object)
    for c in order:
        train = rng.permutation(_of_class(samples, "train", c))
        own, others = usual[c], [v for v in levels if v != usual[c]]
        carried = [own] * _count(shares[c], len(train))
        if others:
            carried += [others[i] for i in rng.integers(len(others), size=len(train))]
        marks[train] = carried[: len(train)] if others else own
        test = rng.permutation(_of_class(samples, "test", c))
        marks[test] = [levels[i % len(levels)] for i in range(len(test))]
    return marks


def _plan(
    scheme: Scheme, order: list[int], variants: tuple[str, ...]
) -> tuple[list[str], dict[int, str], dict[int, float]]:
    """The levels that occur, the usual one of each class, and its share there."""
    if scheme.name == "all" and len(order) > 2:
        if len(variants) < 2:
            raise UsageError("--scheme all: with more than two classes it needs several variants")
        levels = list(variants[: len(order)])
        usual = {c: levels[i % len(levels)] for i, c in enumerate(order)}
        return levels, usual, dict.fromkeys(order, scheme.share)
    carried = variants[0]
    usual = dict.fromkeys(order, NONE) | {order[0]: carried}
    rest = 1.0 if scheme.name == "one" else 0.5
    shares = dict.fromkeys(order, rest) | {order[0]: scheme.share}
    if scheme.name != "one":
        shares[order[1]] = scheme.share
    return [NONE, carried], usual, shares


def _count(share: float, n: int) -> int:
    """How many of n, so that below a share of 1 at least one is left over."""
    return n if share >= 1 or n < 2 else min(max(round(share * n), 1), n - 1)


def _of_class(samples: Samples, split: str, c: int) -> npt.NDArray[np.int64]:
    rows = samples.rows(split)
    found: npt.NDArray[np.int64] = rows[samples.labels[rows] == c]
    return found
