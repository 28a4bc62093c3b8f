"""The gate for values that a user supplies: what each may be, wherever it comes from.

An option, `--set`, a preset, a run folder of a stranger and a parameter of an estimator all pass
here, so a limit holds in all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from sebra.errors import UsageError


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`; `above` and `below` leave out the end itself."""

    least: float
    most: float
    above: bool = False
    below: bool = False

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        number: Any = value  # as it is: a float cannot hold every whole number
        low = number > self.least if self.above else number >= self.least
        return bool(low and (number < self.most if self.below else number <= self.most))

    def __str__(self) -> str:
        start, end = "above" if self.above else "from", "to below" if self.below else "to"
        return f"a number {start} {self.least:.10g} {end} {self.most:.10g}"


@dataclass(frozen=True)
class Names:
    """One of some words."""

    words: tuple[str, ...]

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


ANY = Range(-1e9, 1e9)  # a number of which nothing else is known
_SHARE = Range(0, 1)
_PART = Range(0, 1, above=True, below=True)
_COUNT = Range(1, 1_000_000)
_WEIGHT = Range(0, 1e6)
LIMITS: Mapping[str, Range | Names] = {
    # options of commands
    "seed": Range(0, 2**32 - 1),
    "seeds": Range(1, 10_000),
    "jobs": Range(1, 1024),
    "k": _COUNT,
    "min_group": Range(0, 1e9),
    "image_size": Range(8, 2048),
    "budget": Range(0, 100),
    "tune_seconds": Range(1, 1e7),
    "mode": Names(("auto", "features", "finetune")),
    # how a network is trained
    "epochs": Range(1, 100_000),
    "optimizer": Names(("sgd", "adam", "adamw")),
    "lr": Range(0, 1000, above=True),
    "momentum": Range(0, 1, below=True),
    "weight_decay": Range(0, 1000),
    "batch": Range(0, 2**20),
    "select": Names(("auto", "groups")),
    "schedule": Names(("constant", "cosine")),
    "start": Names(("zero", "probe", "random")),
    "crop": Range(0, 1, above=True),
    "hidden": Range(0, 2**16),
    # of rankers
    "p_critical": _PART,
    "lam": Range(0, 1e6, above=True),
    "beta": Range(0, 1000, above=True),
    "enough": _SHARE,
    "resolution": Names(("auto", "epoch")),
    "top": _COUNT,
    # of debiasing methods
    "gamma": _WEIGHT,
    "tau": Range(0, 1e6, above=True),
    "rank_gap": Range(1, 1e9),
    "hard": _WEIGHT,
    "ce_on": Names(("anchor", "positive", "both")),
    "denominator": Names(("anchor", "batch")),
}


def check(config: Any, own: Mapping[str, bool] | None = None) -> None:
    """Refuses a configuration, naming the first field that is out of its limits.

    own: what else must be true of fields of this kind of configuration alone.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is None or isinstance(value, bool):
            continue
        limit = LIMITS.get(field.name, ANY)
        if (isinstance(value, Real) or field.name in LIMITS) and value not in limit:
            raise UsageError(f"--set {field.name}={_shown(value)}: must be {limit}")
        if field.type == "int" and not isinstance(value, Integral):
            raise UsageError(f"--set {field.name}={_shown(value)}: must be a whole number")
    for name, good in (own or {}).items():
        if not good:
            raise UsageError(f"--set {name}={_shown(getattr(config, name))}: not a valid value")


def require(option: str, value: Any) -> None:
    """Refuses an option that is out of its limits; None is an option that was not given."""
    limit = LIMITS[option.removeprefix("--").replace("-", "_")]
    if value is not None and value not in limit:
        raise UsageError(f"{option}: {_shown(value)} is not {limit}")


def _shown(value: Any) -> str:
    """As Python writes it: a number of numpy's is no other number."""
    return f"{value.item() if hasattr(value, 'item') else value!r:.60}"
