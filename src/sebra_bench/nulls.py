"""Arrays without any pattern, on which no ranking should name one.

Every family has samples that are hard or mislabelled, and nothing that most samples of a class
share and a few lack. Seeds go through all pairs of `CLASSES` and `NOISES`; how many samples and
columns there are, and the unit of each column (0.01 to 100), is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra import __version__
from sebra.engine.features import moments
from sebra.engine.networks import LINEAR, Network, NetworkSpec, build
from sebra.engine.session import ProgressSink, Session, Silent
from sebra.engine.task import Task
from sebra.loading.inputs import Inputs
from sebra.ranking.peel import PeelConfig, PeelRanker
from sebra.ranking.ranking import Blind
from sebra.samples.table import FeatureArray
from sebra_bench.rows import ROWS, Row, Rows, read_rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FAMILIES = (
    "one soft cue",
    "weak cues",
    "weak correlated cues",
    "clear cues, unequal classes",
    "shuffled labels",
    "5 % wrong labels",
    "10 % wrong labels",
    "20 % wrong labels",
    "20 % of one class under another label",
    "soft cues, a fifth of the samples blurred",
)
CLASSES = (2, 3, 5, 10, 20)
NOISES = ("normal", "laplace", "exponential", "t5")
SAMPLES = (400, 1200, 4000)
COLUMNS = (10, 40, 160)
FEWEST = 30  # samples of a class
WEAK = 6  # columns that each say a little


def null_array(family: str, seed: int) -> tuple[Floats, Ints, dict[str, Any]]:
    """Samples x columns, the labels, and what was drawn."""
    rng = np.random.default_rng([FAMILIES.index(family), seed])
    classes = CLASSES[seed % len(CLASSES)]
    noise = NOISES[seed // len(CLASSES) % len(NOISES)]
    n = max(int(rng.choice(SAMPLES)), FEWEST * classes)
    d = max(int(rng.choice(COLUMNS)), classes + WEAK)
    size = np.ones(classes)
    if family.endswith("unequal classes"):
        size[1::2] = 0.2
    y = rng.permutation(np.arange(n) % classes)
    y = y[rng.random(n) < size[y]]
    x = _drawn(rng, noise, (len(y), d))
    if family.endswith("blurred"):
        x[rng.random(len(y)) < 0.2] *= 2
    _tell(x, y, family, rng, classes)
    if family.startswith("shuffled"):
        y = rng.permutation(y)
    elif family.endswith("wrong labels"):
        wrong = rng.random(len(y)) < float(family.split(maxsplit=1)[0]) / 100
        y = np.where(wrong, (y + rng.integers(1, classes, len(y))) % classes, y)
    elif family.endswith("another label"):
        y = np.where((y == 0) & (rng.random(len(y)) < 0.2), 1, y)
    x *= 10 ** rng.uniform(-2, 2, d)
    drawn = {"classes": classes, "noise": noise, "samples": len(y), "columns": d}
    return x, y.astype(np.int64), drawn


def _tell(x: Floats, y: Ints, family: str, rng: np.random.Generator, classes: int) -> None:
    """Moves the samples of every class, in place."""
    if family.startswith("weak"):
        x[:, :WEAK] *= np.linspace(0.5, 2, WEAK)
        if "correlated" in family:
            x[:, :WEAK] += rng.normal(size=(len(x), 1))
        x[:, :WEAK] += rng.normal(size=(classes, WEAK))[y]
        return
    strength = 5.0 if "clear" in family or family.endswith(("labels", "label")) else 2.0
    cues = np.eye(classes) if classes > 2 else np.array([[0.0], [1.0]])
    x[:, : cues.shape[1]] += strength * cues[y]


def _drawn(rng: np.random.Generator, noise: str, shape: tuple[int, int]) -> Floats:
    """Noise of spread one."""
    if noise == "laplace":
        return rng.laplace(scale=0.5**0.5, size=shape)
    if noise == "exponential":
        return rng.exponential(size=shape)
    if noise == "t5":
        return np.asarray(rng.standard_t(5, size=shape) * 0.6**0.5)
    return rng.normal(size=shape)


def task_of(x: Floats, y: Ints) -> Task:
    """A linear head over the columns."""
    cpu, classes = torch.device("cpu"), int(y.max()) + 1
    inputs = Inputs(FeatureArray(x.astype(np.float32), np.arange(len(x))), cpu)
    mean, std = moments(inputs)

    def network(seed: int, hidden: int) -> Network:
        made = build(NetworkSpec(LINEAR, (x.shape[1],), classes, hidden=hidden), seed)
        made.standardise(mean, std)
        return made

    rows = torch.arange(len(y))
    return Task(inputs, rows, torch.from_numpy(y), classes, network, cpu, 0)


def nulls(
    families: Sequence[str], seeds: int, folder: Path, progress: ProgressSink | None = None
) -> list[Row]:
    """A row for every family and seed; those in the folder's `rows.jsonl` are not made again."""
    shown: ProgressSink = progress or Silent()
    file = folder / ROWS
    rows = read_rows(file) if file.is_file() else []
    done, kept = {(row["family"], row["seed"]) for row in rows}, Rows(file)
    for family in families:
        shown.message(f"{family}: is a pattern named?")
        missing = [seed for seed in range(seeds) if (family, seed) not in done]
        rows += [kept.add(row_of(family, seed)) for seed in missing]
    return [row for row in rows if row["family"] in families and row["seed"] < seeds]


def row_of(family: str, seed: int) -> Row:
    """Peels one array, with the settings that everyone has."""
    x, y, drawn = null_array(family, seed)
    result = PeelRanker(PeelConfig()).rank(task_of(x, y), Session(), Blind())
    patterns = result.details.get("patterns") or [result.details["refused"]]
    row: Row = {"family": family, "seed": seed, "version": __version__, **drawn}
    return {**row, "stages": len(result.stages), "chance": float(patterns[0]["chance"])}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """How many runs name a pattern, by family and in all."""
    out: dict[str, Any] = {}
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        out[family] = {"runs": len(own), "named": sum(row["stages"] > 0 for row in own)}
    named = sum(part["named"] for part in out.values())
    return {"families": out, "runs": len(rows), "named": named}
