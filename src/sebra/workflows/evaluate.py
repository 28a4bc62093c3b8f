"""A model against groups: its figures on the test split, else on val."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sebra.debiasing.model import Model
from sebra.errors import UsageError
from sebra.loading.decode import load_images
from sebra.measuring.groups import MIN_GROUP, Scores, score
from sebra.samples.table import FeatureArray, Samples, Texts


def evaluate_model(
    model: Model, samples: Samples, min_group: int = MIN_GROUP
) -> tuple[str, Scores]:
    """Scores a model on the test split, else on val; returns which."""
    if samples.classes != model.classes:
        raise UsageError(
            f"{samples.source}: its classes ({', '.join(samples.classes[:4])}) are not the "
            f"model's ({', '.join(model.classes[:4])})"
        )
    split = next((s for s in ("test", "val") if len(samples.rows(s))), None)
    if split is None:
        raise UsageError(f"{samples.source}: has neither a test nor a val split to evaluate on")
    predicted, samples = predict_split(model, samples, split)
    return split, score(samples, samples.rows(split), predicted, min_group)


def predict_split(
    model: Model, samples: Samples, split: str
) -> tuple[npt.NDArray[np.int64], Samples]:
    """Predicted class numbers of a split, and the data set without unreadable images."""
    part = samples.take(samples.rows(split))
    if isinstance(part.content, FeatureArray):
        if len(model.inputs) != 1:
            raise UsageError(f"{samples.source}: holds features, the model takes images")
        values = part.content.values[part.content.rows]
        return model.probabilities(np.asarray(values, dtype=np.float32)).argmax(1), samples
    if isinstance(part.content, Texts):
        if model.tokeniser is None:
            raise UsageError(f"{samples.source}: holds text, the model does not take text")
        model.tokeniser.check(part.content, samples.source)
        return model.probabilities(part.content).argmax(1), samples
    if len(model.inputs) != 3:
        takes = "text" if model.tokeniser is not None else "features"
        raise UsageError(f"{samples.source}: holds images, the model takes {takes}")
    known = len(part.faults)
    part, images = load_images(part, model.inputs[1])
    samples = samples.without(part.faults[known:])
    blocks = [
        model.probabilities(images.pixels[images.rows[start : start + 1024]]).argmax(1)
        for start in range(0, len(part), 1024)
    ]
    return np.concatenate(blocks), samples
