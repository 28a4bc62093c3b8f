"""The result of ranking: a table of samples, most spurious first within each class."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sebra.errors import CollapsedError, UsageError
from sebra.ranking.order import ranks_within_classes, spuriosity_of
from sebra.samples.parquet import read_parquet, write_parquet

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from sebra.engine.session import Session
    from sebra.engine.task import Task
    from sebra.ranking.noise import NoiseEstimate
    from sebra.ranking.patterns import PatternModel
    from sebra.samples.table import Samples

Array = npt.NDArray[Any]
Config = TypeVar("Config")
COLUMNS = ("id", "label", "rank", "bucket", "spuriosity")
PATTERNS = "patterns.safetensors"  # beside a ranking: what tells its stages of other samples
log = logging.getLogger(__name__)
CHANCES = ("p", "noise")  # columns that a ranking may have, from 0 to 1


@dataclass(frozen=True)
class RankResult:
    """What a ranker returns, one entry per training sample.

    bucket: smaller = learned earlier = more spurious. score: orders samples inside a bucket,
    larger = more spurious. p: the probability of the label when the sample was last looked at.
    stages: alignment with each discovered bias, higher = follows it. level: which of them a sample
    follows, from 0 (none) to levels - 1 (all), falling from bucket to bucket; None without any.
    noise: who is likely mislabelled, where the ranker had to know. patterns: tells the stages of
    other samples. collapsed: why the order says nothing and what to change, else empty.
    """

    bucket: Array
    score: Array
    p: Array | None = None
    stages: Mapping[str, Array] = field(default_factory=dict)
    level: Array | None = None
    levels: int = 1
    noise: NoiseEstimate | None = None
    patterns: PatternModel | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    collapsed: str = ""


class Monitor(Protocol):
    """Is told of every round; keeps the history. Rankers never see what it measures."""

    def round(
        self, number: int, network: torch.nn.Module | None, loss: float, learned: torch.Tensor
    ) -> None:
        return

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return


class Blind(Monitor):
    """A monitor that keeps nothing."""


class Ranker(ABC, Generic[Config]):
    """Orders the training samples of a task by spuriosity.

    config_class: a frozen dataclass with its settings. sees_patches: whether frozen features of
    pictures come to it as patch features, where they can be made, or as the network gives them.
    takes_marks: whether a person can mark something for it, by `--neurons`. names_patterns: whether
    it gives a stage to each pattern that it finds, and none where it finds nothing. usual_mode:
    `features` where it ranks over the frozen network, if that is pretrained and a user leaves it
    open.
    """

    config_class: ClassVar[type[Any]]
    sees_patches: ClassVar[bool] = True
    takes_marks: ClassVar[bool] = False
    names_patterns: ClassVar[bool] = False
    usual_mode: ClassVar[str | None] = None

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult: ...

    def take_marks(self, marks: str | None, train: Samples) -> None:
        """Reads what a person marked, before `rank`; None where `--neurons` was not given."""

    def leave(self, folder: Path, train: Samples, session: Session) -> None:
        """Writes files of its own beside the ranking, after `rank`."""


class Ranking:
    """Every training sample with its rank; `.table` is a pandas DataFrame.

    Row order is that of the training split. `details` is what the run knows about it.
    """

    def __init__(self, table: pd.DataFrame, details: Mapping[str, Any] | None = None) -> None:
        self.table = table
        self.details: dict[str, Any] = dict(details or {})
        self.folder: Path | None = None
        self.data: str = ""
        self.patterns: PatternModel | None = None  # tells the stages of other samples
        self.logits: Array | None = None  # held-out ones, while the run that made them lasts

    @classmethod
    def from_result(
        cls, result: RankResult, ids: Array, labels: Array, classes: tuple[str, ...]
    ) -> Ranking:
        """The table of a result; one that collapsed is refused."""
        import pandas as pd

        if result.collapsed:
            raise CollapsedError(result.collapsed)
        rank = ranks_within_classes(result.bucket, result.score, labels)
        columns: dict[str, Any] = {
            "id": ids.astype(object),
            "label": np.asarray(classes, dtype=object)[labels],
            "rank": rank,
            "bucket": result.bucket.astype(np.int64),
            "spuriosity": spuriosity_of(rank, labels, result.level, result.levels).astype(float),
        }
        if result.p is not None:
            columns["p"] = result.p.astype(np.float64)
        columns.update({k: v.astype(np.float64) for k, v in result.stages.items()})
        ranking = cls(pd.DataFrame(columns), result.details)
        ranking.patterns = result.patterns
        for pattern in ranking.details.get("patterns", ()):
            pattern["share"] = dict(zip(classes, pattern["share"], strict=False))
        return ranking

    def __len__(self) -> int:
        return len(self.table)

    @property
    def stages(self) -> list[str]:
        """Names of the alignment columns, strongest bias first."""
        return [c for c in self.table.columns if str(c).startswith("stage_")]

    @property
    def trust(self) -> float | None:
        """What the controls say of the order, from 0 to 1; None where they could not run."""
        found = self.details.get("trust")
        return None if found is None else float(found)

    @property
    def buckets(self) -> int:
        """How many buckets hold at least one sample."""
        return int(self.table["bucket"].nunique())

    def save(self, path: Path) -> None:
        """Writes the table as Parquet, atomically, and its patterns beside it."""
        if self.patterns is not None:
            self.patterns.save(_patterns_beside(path))
        write_parquet(path, self.table)

    @classmethod
    def load(cls, path: str | Path) -> Ranking:
        """A ranking from a run folder or a Parquet file."""
        where = Path(path)
        file = where / "ranking.parquet" if where.is_dir() else where
        if not file.is_file():
            raise UsageError(f"{path}: no ranking.parquet here; give a rank run or a parquet file")
        table = read_parquet(file, "a Parquet file")
        if wrong := _wrong(table):
            raise UsageError(f"{file}: not a ranking, {wrong}")
        ranking = cls(table)
        ranking.folder = where if where.is_dir() else None
        if _patterns_beside(file).is_file():
            from sebra.ranking.patterns import PatternModel

            try:
                ranking.patterns = PatternModel.load(_patterns_beside(file))
            except UsageError as error:  # the order is as good as it was
                log.warning("%s: patterns cannot be found in other samples; rank again", error)
        return ranking

    def aligned_to(self, ids: Array) -> pd.DataFrame:
        """The rows for these ids, in this order; refuses a ranking of other data."""
        table = self.table.set_index("id")
        missing = [i for i in ids if i not in table.index]
        if missing:
            raise UsageError(
                f"--ranking: {len(missing)} of {len(ids)} training samples are not in the ranking "
                f"(first: {missing[0]}); it was made from other data"
            )
        if not table.index.is_unique:
            raise UsageError("--ranking: ids are not unique in the ranking")
        return table.loc[ids].reset_index()

    def taken(self, part: Samples) -> Ranking:
        """The ranking of these samples, in their order; refuses a ranking of other data.

        Some labels may have been mended since; if most are others, the ids are equal by accident.
        """
        table = self.aligned_to(part.ids)
        labels = np.asarray(part.classes, dtype=object)[part.labels].astype(str)
        other = np.flatnonzero(table["label"].to_numpy().astype(str) != labels)
        if 2 * len(other) > len(table):
            first = table.iloc[other[0]]
            raise UsageError(
                f"--ranking: {len(other)} of {len(table)} training samples have another label in "
                f"the ranking (first: {first['id']}, '{first['label']}' there, "
                f"'{labels[other[0]]}' here); it was made from other data"
            )
        found = Ranking(table, self.details)
        found.folder, found.data, found.patterns = self.folder, self.data, self.patterns
        return found

    def __repr__(self) -> str:
        trust = "" if self.trust is None else f", trust {self.trust:.2f}"
        return (
            f"Ranking({len(self)} samples, {self.table['label'].nunique()} classes, "
            f"{len(self.stages)} patterns{trust}; .table is a DataFrame)"
        )

    def only(self, stages: Sequence[str]) -> Ranking:
        """The ranking by these of its patterns alone: the others count as what is meant."""
        unknown = [name for name in stages if name not in self.stages]
        if unknown:
            raise UsageError(f"the ranking has no pattern {unknown[0]}")
        kept = [k for k, name in enumerate(self.stages) if name in stages]
        names = [self.stages[k] for k in kept]
        table = self.table.drop(columns=[c for c in self.stages if c not in names])
        if names:
            labels = np.unique(table["label"].to_numpy().astype(str), return_inverse=True)[1]
            follows = (table[names].to_numpy() > 0.5).astype(np.int64)
            level = follows @ (2 ** np.arange(len(names))[::-1])  # the strongest counts most
            bucket, many = level.max() - level, 2 ** len(names)
            rank = ranks_within_classes(bucket, -table["rank"].to_numpy(), labels)
            spuriosity = spuriosity_of(rank, labels, level, many)
            table = table.assign(rank=rank, bucket=bucket, spuriosity=spuriosity)
        found = Ranking(table, self.details)
        found.folder, found.data = self.folder, self.data
        found.patterns = None if self.patterns is None else self.patterns.only(kept)
        return found

    def _repr_html_(self) -> str:
        head = self.table.sort_values(["label", "rank"]).groupby("label").head(3)
        words = [
            (k, word)
            for k, pattern in enumerate(self.details.get("patterns", ()), 1)
            for word in pattern.get("words", ())[:2]
        ]
        said = [
            f"<li>Pattern {k}: {escape('; '.join(map(': '.join, word['phrases'].items())))} "
            f"({word['area']:.2f})</li>"
            for k, word in words
        ]
        return (
            f"<p><b>{escape(repr(self))}</b></p><ul>{''.join(said)}</ul>"
            f"<p>The most spurious of each class:</p>{head.to_html(index=False, escape=True)}"
        )


def _wrong(table: pd.DataFrame) -> str:
    """What keeps a table from being a ranking; nothing where it is one."""
    from pandas.api.types import infer_dtype, is_integer_dtype, is_numeric_dtype

    missing = [c for c in COLUMNS if c not in table.columns]
    if missing:
        return f"columns missing: {', '.join(missing)}"
    for name, column in table.items():
        good: Any = True
        what = "texts"
        if name in ("id", "label"):
            good = infer_dtype(column, skipna=False) == "string"
        elif name in ("rank", "bucket"):
            good, what = is_integer_dtype(column) and (column >= 0).all(), "whole numbers from 0 on"
        elif name in ("spuriosity", *CHANCES) or str(name).startswith("stage_"):
            good, what = is_numeric_dtype(column) and column.between(0, 1).all(), "numbers 0 to 1"
        if not good or (name in COLUMNS and column.isna().any()):
            return f"column {name} must hold {what}"
    return "" if table["id"].is_unique else "an id occurs twice"


def _patterns_beside(file: Path) -> Path:
    """Where the patterns of a ranking lie: of several tables in a folder each has its own."""
    if file.name == "ranking.parquet":
        return file.with_name(PATTERNS)
    return file.with_name(f"{file.stem}.{PATTERNS}")
