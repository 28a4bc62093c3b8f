"""`sebra predict`: a model's answer for every sample of DATA, labelled or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sebra.debiasing.model import Model
from sebra.engine.session import ProgressSink, Silent
from sebra.errors import UsageError
from sebra.loading.decode import workers
from sebra.loading.texts import Tokeniser
from sebra.samples.open import read_unlabelled
from sebra.samples.picture import decode_image
from sebra.samples.table import Content, Fault, FeatureArray, ImageFiles, Samples, Texts
from sebra_tools.tables import csv_text

_CHUNK = 256
_DIGITS = 6


class Classifier(Protocol):
    """What answers: a model of ours, or a file of another tool."""

    @property
    def inputs(self) -> tuple[int, ...]: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def tokeniser(self) -> Tokeniser | None: ...
    def probabilities(self, content: Any) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class Predictions:
    """One row per sample, in DATA's order; NaN where an image could not be read."""

    ids: npt.NDArray[np.object_]
    classes: tuple[str, ...]
    probabilities: npt.NDArray[np.float32]
    faults: tuple[Fault, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """`id`, `predicted`, `probability` and one `p_<class>` for each class."""
        out = []
        for name, row in zip(self.ids.tolist(), self.probabilities.tolist(), strict=True):
            readable = row[0] == row[0]
            best = int(np.argmax(row)) if readable else -1
            each = {
                f"p_{c}": round(p, _DIGITS) if readable else None
                for c, p in zip(self.classes, row, strict=True)
            }
            predicted = self.classes[best] if readable else None
            top = round(row[best], _DIGITS) if readable else None
            out.append({"id": name, "predicted": predicted, "probability": top, **each})
        return out

    def csv(self) -> str:
        columns = ["id", "predicted", "probability", *(f"p_{c}" for c in self.classes)]
        return csv_text(self.rows(), columns)

    def counts(self) -> dict[str, int]:
        """How many samples were given each class."""
        readable = ~np.isnan(self.probabilities[:, 0])
        best = self.probabilities[readable].argmax(1)
        found = np.bincount(best, minlength=len(self.classes))
        return dict(zip(self.classes, found.tolist(), strict=True))


def predict(model: Model, data: str, progress: ProgressSink | None = None) -> Predictions:
    """Predictions for any form of DATA, a folder of images without classes, or one image."""
    sink = progress or Silent()
    ids, content = read_unlabelled(data)
    check_kind(model, content, data)
    faults: list[Fault] = []
    parts = []
    sink.start("predict", len(ids))
    try:
        for start, probabilities, bad in _chunks(model, content, len(ids)):
            parts.append(probabilities)
            faults += [Fault(str(ids[start + i]), reason) for i, reason in bad]
            done = start + len(probabilities)
            sink.advance(done, images=done)
    finally:
        sink.finish()
    return Predictions(ids, model.classes, np.concatenate(parts), tuple(faults))


def answer(model: Classifier, samples: Samples) -> npt.NDArray[np.float32]:
    """Probabilities of these samples, in their order; NaN where one cannot be read."""
    check_kind(model, samples.content, samples.source)
    return np.concatenate([p for _, p, _ in _chunks(model, samples.content, len(samples))])


def check_kind(model: Classifier, content: Content, data: str) -> None:
    """Refuses contents the model does not take."""
    if isinstance(content, Texts):
        if model.tokeniser is None:
            raise UsageError(f"{data}: holds text, the model does not take text")
        model.tokeniser.check(content, data)
    elif model.tokeniser is not None:
        raise UsageError(f"{data}: holds no text, the model takes text")
    elif isinstance(content, FeatureArray):
        width = content.values.shape[1]
        if len(model.inputs) != 1:
            raise UsageError(f"{data}: holds features, the model takes images")
        if width != model.inputs[0]:
            raise UsageError(f"{data}: has {width} features, the model takes {model.inputs[0]}")
    elif len(model.inputs) != 3:
        raise UsageError(f"{data}: holds images, the model takes {model.inputs[0]} features")


Bad = list[tuple[int, str]]
Chunk = tuple[int, npt.NDArray[np.float32], Bad]


def _chunks(model: Classifier, content: Content, total: int) -> Iterator[Chunk]:
    """Probabilities piece by piece, so that memory does not grow with DATA."""
    if isinstance(content, ImageFiles):
        with ThreadPoolExecutor(workers()) as pool:
            for start in range(0, total, _CHUNK):
                paths = content.paths[start : start + _CHUNK]
                yield start, *_of_files(model, paths, pool.map)
        return
    for start in range(0, total, _CHUNK):
        if isinstance(content, Texts):
            some = content.take(np.arange(start, min(start + _CHUNK, total)))
            yield start, model.probabilities(some), []
            continue
        rows = content.rows[start : start + _CHUNK]
        if isinstance(content, FeatureArray):
            values: Any = np.asarray(content.values[rows], dtype=np.float32)
        else:
            values = np.ascontiguousarray(content.pixels[rows])
        yield start, model.probabilities(values), []


def _of_files(
    model: Classifier, paths: Sequence[Path], map_: Callable[..., Any]
) -> tuple[npt.NDArray[np.float32], Bad]:
    size = model.inputs[1]

    def decode(path: Path) -> Any:
        try:
            return decode_image(path, size)
        except ValueError as error:
            return str(error)

    found = list(map_(decode, paths))
    bad = [(i, reason) for i, reason in enumerate(found) if isinstance(reason, str)]
    good = [i for i, pixels in enumerate(found) if not isinstance(pixels, str)]
    out = np.full((len(paths), len(model.classes)), np.nan, dtype=np.float32)
    if good:
        out[good] = model.probabilities(np.stack([found[i] for i in good]))
    return out, bad
