"""The one table of samples, whatever they were read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError

Kind = Literal["image", "features", "text"]
SPLITS = ("train", "val", "test")
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fault:
    """A sample that could not be used, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Attribute:
    """One attribute column, used only to evaluate.

    `aligned[c]` is the value code that counts as aligned in class `c` where the layout fixes it;
    None means: the most frequent value of that class in the training split. Code -1 is missing.
    """

    name: str
    codes: IntArray
    levels: tuple[str, ...]
    aligned: tuple[int, ...] | None = None

    def take(self, rows: npt.NDArray[Any]) -> Attribute:
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True)
class ImageFiles:
    """Images on disk; `paths[i]` is absolute."""

    paths: tuple[Path, ...]

    def take(self, rows: npt.NDArray[Any]) -> ImageFiles:
        return ImageFiles(tuple(self.paths[i] for i in rows.tolist()))


@dataclass(frozen=True)
class ImageArray:
    """Images in memory or in a memory map: uint8, n x height x width x 3."""

    pixels: npt.NDArray[np.uint8]
    rows: IntArray

    def take(self, rows: npt.NDArray[Any]) -> ImageArray:
        return ImageArray(self.pixels, self.rows[rows])


@dataclass(frozen=True)
class FeatureArray:
    """Features in memory or in a memory map: n x d floats. `rows` are the rows in use.

    names: of the columns, where they have some.
    """

    values: npt.NDArray[np.floating[Any]]
    rows: IntArray
    names: tuple[str, ...] = ()

    def take(self, rows: npt.NDArray[Any]) -> FeatureArray:
        return replace(self, rows=self.rows[rows])


@dataclass(frozen=True)
class Texts:
    """Sentences, or sentence pairs where `second` is given."""

    first: tuple[str, ...]
    second: tuple[str, ...] | None = None

    def take(self, rows: npt.NDArray[Any]) -> Texts:
        second = None if self.second is None else tuple(self.second[i] for i in rows.tolist())
        return Texts(tuple(self.first[i] for i in rows.tolist()), second)


Content = ImageFiles | ImageArray | FeatureArray | Texts


@dataclass(frozen=True)
class Samples:
    """Every sample of a data set: ids, labels, splits, attributes and where the content is."""

    ids: npt.NDArray[np.object_]
    labels: IntArray
    classes: tuple[str, ...]
    split: npt.NDArray[np.int8]  # index into SPLITS
    content: Content
    attributes: Mapping[str, Attribute] = field(default_factory=dict)  # strongest first
    faults: tuple[Fault, ...] = ()
    name: str = "data"
    source: str = ""  # the DATA argument it came from
    mode: str | None = None  # `features` or `finetune`, where it is made for one of them

    @property
    def kind(self) -> Kind:
        if isinstance(self.content, FeatureArray):
            return "features"
        return "text" if isinstance(self.content, Texts) else "image"

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, split: str) -> IntArray:
        """Row numbers of one split ("train", "val" or "test")."""
        return np.flatnonzero(self.split == SPLITS.index(split)).astype(np.int64)

    def take(self, rows: npt.NDArray[Any]) -> Samples:
        """The same data set with these rows only, in this order."""
        return replace(
            self,
            ids=self.ids[rows],
            labels=self.labels[rows],
            split=self.split[rows],
            content=self.content.take(rows),
            attributes={k: a.take(rows) for k, a in self.attributes.items()},
        )

    def without(self, faults: Sequence[Fault]) -> Samples:
        """Drops the faulty samples and remembers them."""
        if not faults:
            return self
        bad = {f.id for f in faults}
        good = np.fromiter((name not in bad for name in self.ids.tolist()), np.bool_, len(self.ids))
        return replace(self.take(np.flatnonzero(good)), faults=(*self.faults, *faults))

    def with_attributes(self, names: Sequence[str]) -> Samples:
        """Only these attribute columns, in this order (strongest first)."""
        for name in names:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise UsageError(
                    f"--attributes: no column {name!r} in {self.source} (has: {known})"
                )
        return replace(self, attributes={n: self.attributes[n] for n in names})


def aligned_codes(samples: Samples, attribute: Attribute) -> IntArray:
    """Per class, the attribute value that counts as aligned (see `interface`: ground truth)."""
    if attribute.aligned is not None:
        return np.asarray(attribute.aligned, dtype=np.int64)
    train = samples.rows("train")
    out = np.zeros(len(samples.classes), dtype=np.int64)
    for c in range(len(samples.classes)):
        codes = attribute.codes[train][samples.labels[train] == c]
        counts = np.bincount(codes[codes >= 0], minlength=len(attribute.levels))
        out[c] = int(counts.argmax())
    return out


def untelling(samples: Samples) -> list[str]:
    """A line for each attribute whose aligned value is the same in every class.

    Following it cannot tell the classes apart, so what is measured by it shows no shortcut.
    """
    train = samples.rows("train")
    lines = []
    for name, attribute in samples.attributes.items():
        known = attribute.codes[train] >= 0
        complete = len(np.unique(samples.labels[train][known])) == len(samples.classes) > 1
        codes = np.unique(aligned_codes(samples, attribute))
        if attribute.aligned is None and complete and len(codes) == 1:
            value = attribute.levels[codes[0]]
            lines.append(
                f"attribute {name}: '{value}' is the most frequent value in every class, so it "
                "cannot tell the classes apart; read figures by this attribute with care"
            )
    return lines


def alignment(samples: Samples) -> tuple[tuple[str, ...], BoolArray]:
    """Attribute names and an n x k table: is sample i aligned in attribute k?"""
    names = tuple(samples.attributes)
    columns = [
        a.codes == aligned_codes(samples, a)[samples.labels] for a in samples.attributes.values()
    ]
    table = np.stack(columns, axis=1) if columns else np.zeros((len(samples), 0), dtype=np.bool_)
    return names, table.astype(np.bool_)


def true_groups(samples: Samples) -> IntArray:
    """Group of each sample: aligned/conflicting in lexicographic order, all aligned = 0."""
    _, aligned = alignment(samples)
    group = np.zeros(len(samples), dtype=np.int64)
    for k in range(aligned.shape[1]):
        group = group * 2 + (~aligned[:, k]).astype(np.int64)
    return group
