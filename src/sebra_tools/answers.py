"""What a model answers for the samples of DATA, whoever trained it.

A run folder with a model, an ONNX file, or a table of predictions that some other tool wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.debiasing.model import WEIGHTS, Model
from sebra.errors import UsageError, reason
from sebra.samples.marks import GUARD
from sebra.samples.table import IntArray, Samples
from sebra_tools.predict import Classifier, answer

UNKNOWN = -1
PREDICTED = ("predicted", "prediction", "label")
SPLITS = ("test", "val", "train")  # where a model is measured, best first
# Float pictures are taken for what most networks of pictures want.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_LEAST = 0.5  # of a split must be answered for it to be measured there


@dataclass(frozen=True)
class Answers:
    """predicted: a class number per sample of the data set, -1 where nothing was answered."""

    name: str
    predicted: IntArray

    def known(self, samples: Samples, split: str) -> IntArray:
        """Rows of a split that were answered; none where most were not."""
        rows = samples.rows(split)
        found = rows[self.predicted[rows] != UNKNOWN]
        return found if len(found) >= max(1, _LEAST * len(rows)) else rows[:0]


def is_model(what: str) -> bool:
    """Whether something answers: a model run, an ONNX file or a table of predictions."""
    path = Path(what)
    return path.is_file() or (path / WEIGHTS).is_file()


def answers_of(what: str, samples: Samples, device: str = "auto") -> Answers:
    """The answers of a run, an ONNX file or a table for a data set.

    A table may answer for any samples; a model is asked for the first split there is of `SPLITS`.
    """
    path = Path(what)
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv", ".parquet") and path.is_file():
        return Answers(what, _of_table(path, samples))
    model: Classifier
    if suffix == ".onnx" and path.is_file():
        model = _Onnx(path, samples)
    elif (path / WEIGHTS).is_file():
        model = Model.load(path, device)
    else:
        raise UsageError(f"{what}: neither a model run, nor .onnx, nor a table of predictions")
    place = _codes(model.classes, samples, what)
    rows = next(r for split in SPLITS if len(r := samples.rows(split)))
    found = np.full(len(samples), UNKNOWN, dtype=np.int64)
    probabilities = answer(model, samples.take(rows))
    read = ~np.isnan(probabilities[:, 0])
    found[rows[read]] = place[probabilities[read].argmax(1)]
    return Answers(what, found)


def _codes(classes: tuple[str, ...], samples: Samples, what: str) -> IntArray:
    number = {name: c for c, name in enumerate(samples.classes)}
    other = [c for c in classes if c not in number]
    if other:
        raise UsageError(f"{what}: {other[0]!r} is no class of {samples.source}")
    return np.array([number[c] for c in classes], dtype=np.int64)


def _of_table(path: Path, samples: Samples) -> IntArray:
    """`id`, and `predicted` or a probability per class: `p_<class>` or the class's name."""
    import pandas as pd

    try:
        if path.suffix.lower() == ".parquet":
            table = pd.read_parquet(path)
        else:
            table = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",", dtype=str)
    except (OSError, ValueError, UnicodeError) as error:
        raise UsageError(f"{path}: cannot be read as a table ({reason(error)})") from None
    table.columns = [str(c).removeprefix(GUARD) for c in table.columns]
    if "id" not in table:
        raise UsageError(f"{path}: has no column id, whose values name samples of the data")
    place = {str(name): row for row, name in enumerate(samples.ids.tolist())}
    ids = [_known(str(i), place) for i in table["id"]]
    if not ids:
        raise UsageError(f"{path}: has no rows")
    rows = np.array([place.get(i, UNKNOWN) for i in ids], dtype=np.int64)
    if (rows == UNKNOWN).all():
        raise UsageError(
            f"{path}: none of its ids is a sample of {samples.source} (its first is {ids[0]!r}, "
            f"there {samples.ids[0]!r})"
        )
    used = rows[rows != UNKNOWN]
    if len(np.unique(used)) < len(used):
        raise UsageError(f"{path}: an id occurs twice")
    found = np.full(len(samples), UNKNOWN, dtype=np.int64)
    found[used] = _predicted(path, table, samples)[rows != UNKNOWN]
    return found


def _predicted(path: Path, table: Any, samples: Samples) -> IntArray:
    named = next((c for c in PREDICTED if c in table), None)
    if named is not None:
        number = {name: c for c, name in enumerate(samples.classes)}
        texts = [_known(str(v), number) for v in table[named].fillna("")]
        unknown = next((t for t in texts if t and t not in number), None)
        if unknown is not None:
            raise UsageError(f"{path}: {named} {unknown!r} is no class of {samples.source}")
        return np.array([number.get(t, UNKNOWN) for t in texts], dtype=np.int64)
    for columns in ([f"p_{c}" for c in samples.classes], list(samples.classes)):
        if all(c in table for c in columns):
            try:
                values = table[columns].to_numpy(dtype=np.float64)
            except ValueError as error:
                raise UsageError(f"{path}: a probability is not a number ({error})") from None
            known = ~np.isnan(values).any(axis=1)
            best = np.where(np.isnan(values), -np.inf, values).argmax(1)
            return np.where(known, best, UNKNOWN).astype(np.int64)
    raise UsageError(
        f"{path}: needs a column {PREDICTED[0]}, or one of probabilities p_<class> for each of "
        f"{', '.join(samples.classes[:4])}"
    )


def _known(text: str, known: dict[str, int]) -> str:
    plain = text.removeprefix(GUARD)
    return plain if plain in known else text


class _Onnx:
    """An ONNX file that takes a batch of pictures or features and gives a number per class.

    Its classes are those that `sebra export` keeps in it, else the data set's in their order.
    """

    tokeniser = None

    def __init__(self, path: Path, samples: Samples) -> None:
        import json

        if find_spec("onnxruntime") is None:
            raise UsageError(f"{path}: needs onnxruntime; pip install 'sebra[export]' brings it")
        import onnxruntime

        try:
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            kept = session.get_modelmeta().custom_metadata_map.get("classes")
            self.classes = tuple(map(str, json.loads(kept))) if kept else samples.classes
        except Exception as error:  # its errors share no base of their own
            raise UsageError(f"{path}: cannot be loaded ({reason(error)})") from None
        first = session.get_inputs()[0]
        sizes = tuple(d if isinstance(d, int) else 224 for d in first.shape[1:])
        if len(session.get_inputs()) != 1 or len(sizes) not in (1, 3):
            raise UsageError(f"{path}: takes neither one batch of pictures nor of features")
        self.inputs = sizes
        self._session, self._name, self._path = session, first.name, path
        self._floats = "float" in first.type

    def probabilities(self, content: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Whatever the file gives, per class: only the largest counts."""
        if content.ndim == 4:  # n x height x width x 3, as pictures are read
            content = content.transpose(0, 3, 1, 2)
            if self._floats:
                mean, std = (np.reshape(m, (3, 1, 1)) for m in (_MEAN, _STD))
                content = ((content / 255.0 - mean) / std).astype(np.float32)
        given = np.ascontiguousarray(content)
        try:
            found = np.asarray(self._session.run(None, {self._name: given})[0], dtype=np.float32)
        except Exception as error:  # as above
            raise UsageError(f"{self._path}: cannot be run ({reason(error)})") from None
        if found.shape != (len(content), len(self.classes)):
            raise UsageError(
                f"{self._path}: gives {found.shape[1:]} per sample, not one of "
                f"{len(self.classes)} classes"
            )
        return found
