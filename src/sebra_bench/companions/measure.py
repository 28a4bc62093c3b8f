"""Measures a model on the sets beside ImageNet's test split: ImageNet-W, -9 and -R."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.debiasing.model import Model
from sebra.errors import UsageError
from sebra.loading.decode import load_images
from sebra.measuring.scores import Scores
from sebra.samples.layouts import find_layout
from sebra.samples.table import Samples
from sebra_bench.companions import gaps as shortcuts
from sebra_bench.companions.find import Companions, ImageNet9, companions
from sebra_bench.companions.watermark import Watermark

_CHUNK = 1024
Found = dict[str, tuple[float, int]]  # accuracy in percent and number of pictures, by name


LAYOUT = "imagenet"


def wanted(data: str) -> Callable[[Model, Samples, str, Scores], dict[str, Any]] | None:
    """Measures what DATA names, which is checked now; None where DATA names nothing."""
    found = companions_of(data)
    if found is None:
        return None
    if found.mark is not None:
        Watermark(found.mark.text, found.mark.font)
    return partial(measure_companions, found)


def companions_of(data: str) -> Companions | None:
    """The companions that the options of `imagenet:PATH?…` name."""
    name, _, rest = data.partition(":")
    if name != LAYOUT:
        return None
    path, _, query = rest.partition("?")
    return companions(Path(path).expanduser(), find_layout(name).parse(query))


def measure_companions(
    wanted: Companions, model: Model, samples: Samples, split: str, clean: Scores
) -> dict[str, Any]:
    """`gaps` and `companions` of the evaluation, for whatever companions DATA names.

    `clean` are the model's scores on `split` of `samples`, which the gaps are taken from.
    """
    if len(model.inputs) != 3:
        raise UsageError(f"{samples.source}: the companions are images, the model takes features")
    found: Found = {}
    if wanted.mark is not None:
        watermark = Watermark(wanted.mark.text, wanted.mark.font)
        found |= _marked(model, samples, split, clean, watermark, wanted.carton)
    if wanted.in9 is not None:
        found |= _superclasses(model, wanted.in9)
    if wanted.inr is not None:
        found |= _renditions(model, samples, split, wanted.inr)
    accuracies = {name: value for name, (value, _) in found.items()}
    return {
        "gaps": {**clean.gaps, **shortcuts.shortcut_gaps(accuracies)},
        "companions": {name: {"accuracy": a, "n": n} for name, (a, n) in found.items()},
    }


def _marked(
    model: Model, samples: Samples, split: str, clean: Scores, watermark: Watermark, carton: str
) -> Found:
    part, probabilities = _predict(model, samples.take(samples.rows(split)), watermark)
    predicted = probabilities.argmax(1)
    number = len(part)
    found = {
        shortcuts.ID: (clean.average, number),
        shortcuts.MARKED: (shortcuts.accuracy(predicted, part.labels), number),
    }
    if carton in clean.per_class:
        rows = part.labels == part.classes.index(carton)
        marked = shortcuts.accuracy(predicted[rows], part.labels[rows])
        found[shortcuts.CARTON] = (clean.per_class[carton], int(rows.sum()))
        found[shortcuts.CARTON_MARKED] = (marked, int(rows.sum()))
    return found


def _superclasses(model: Model, in9: ImageNet9) -> Found:
    found: Found = {}
    for name, pictures in ((shortcuts.SAME, in9.mixed_same), (shortcuts.RAND, in9.mixed_rand)):
        part, probabilities = _predict(model, pictures)
        answered = shortcuts.answer_as(probabilities, in9.answers)
        found[name] = shortcuts.accuracy(answered, part.labels), len(part)
    return found


def _renditions(model: Model, samples: Samples, split: str, pictures: Samples) -> Found:
    """ImageNet-R, and the test pictures of the same classes under the same choice of answers."""
    allowed = np.array([samples.classes.index(name) for name in pictures.classes], dtype=np.int64)
    place = np.full(len(samples.classes), -1, dtype=np.int64)
    place[allowed] = np.arange(len(allowed))
    rows = samples.rows(split)
    rows = rows[place[samples.labels[rows]] >= 0]
    found: Found = {}
    part, probabilities = _predict(model, samples.take(rows))
    answered = shortcuts.answer_among(probabilities, allowed)
    found[shortcuts.CLASSES_OF_R] = shortcuts.accuracy(answered, place[part.labels]), len(part)
    part, probabilities = _predict(model, pictures)
    answered = shortcuts.answer_among(probabilities, allowed)
    found[shortcuts.RENDITIONS] = shortcuts.accuracy(answered, part.labels), len(part)
    return found


def _predict(
    model: Model, samples: Samples, watermark: Watermark | None = None
) -> tuple[Samples, npt.NDArray[np.float32]]:
    """The readable samples and their class probabilities."""
    part, images = load_images(samples, model.inputs[1])

    def blocks() -> Iterator[npt.NDArray[np.float32]]:
        for start in range(0, len(part), _CHUNK):
            pixels = images.pixels[images.rows[start : start + _CHUNK]]
            yield model.probabilities(pixels if watermark is None else watermark.mark(pixels))

    return part, np.concatenate(list(blocks()))
