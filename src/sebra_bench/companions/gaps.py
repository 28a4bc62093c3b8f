"""ImageNet's shortcut gaps, from what a model answered on ImageNet and on its companions.

Every gap is the accuracy where the shortcut misleads minus the accuracy where it does not, in
points. Negative is worse, but for Carton: there the mark helps, so a large gap is the bad one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.samples.table import IntArray

ID, MARKED = "IN-1K", "IN-W"
CARTON, CARTON_MARKED = "Carton", "Carton, marked"
SAME, RAND = "IN-9 mixed-same", "IN-9 mixed-rand"
CLASSES_OF_R, RENDITIONS = "IN-200", "IN-R"
GAPS = {
    "IN-W": (MARKED, ID),
    "IN-9": (RAND, SAME),
    "IN-R": (RENDITIONS, CLASSES_OF_R),
    "Carton": (CARTON_MARKED, CARTON),
}


def shortcut_gaps(accuracies: Mapping[str, float]) -> dict[str, float]:
    """The gaps that these accuracies (percent, by the names above) allow, in the paper's order."""
    return {
        name: accuracies[there] - accuracies[here]
        for name, (there, here) in GAPS.items()
        if there in accuracies and here in accuracies
    }


def accuracy(predicted: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """Percent of predictions that are right."""
    return 100.0 * float((predicted == labels).mean())


def answer_among(probabilities: npt.NDArray[Any], allowed: IntArray) -> IntArray:
    """The likeliest of the allowed classes for every row, as a place in `allowed`.

    ImageNet-R shows 200 classes, and only these may be answered.
    """
    best: IntArray = probabilities[:, allowed].argmax(axis=1).astype(np.int64)
    return best


def answer_as(probabilities: npt.NDArray[Any], answers: IntArray) -> IntArray:
    """The superclass of the likeliest class for every row; -1, which is never right, for none.

    All classes compete, as published for ImageNet-9, not only those that have a superclass.
    """
    translated: IntArray = answers[probabilities.argmax(axis=1)]
    return translated
