"""ImageNet's gaps on predictions made by hand."""

import numpy as np
import pytest

from sebra_bench.companions.gaps import accuracy, answer_among, answer_as, shortcut_gaps


def test_each_gap_is_the_misled_accuracy_minus_the_other():
    found = shortcut_gaps(
        {
            "IN-1K": 76.0,
            "IN-W": 50.0,
            "Carton": 40.0,
            "Carton, marked": 80.0,
            "IN-9 mixed-same": 86.0,
            "IN-9 mixed-rand": 79.0,
            "IN-200": 92.0,
            "IN-R": 36.0,
        }
    )
    assert found == {"IN-W": -26.0, "IN-9": -7.0, "IN-R": -56.0, "Carton": 40.0}


def test_a_gap_needs_both_of_its_sets():
    assert shortcut_gaps({"IN-1K": 70.0, "IN-R": 30.0, "IN-W": 65.0}) == {"IN-W": -5.0}


def test_accuracy_is_in_percent():
    assert accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])) == 75.0


def test_renditions_are_answered_among_their_classes_only():
    # Class 2 would win every row, but ImageNet-R shows classes 1 and 3 only.
    probabilities = np.array([[0.1, 0.3, 0.5, 0.1], [0.0, 0.1, 0.7, 0.2]])
    assert answer_among(probabilities, np.array([1, 3])).tolist() == [0, 1]


@pytest.mark.parametrize(("winner", "superclass"), [(0, 4), (1, 4), (2, 7), (3, -1)])
def test_superclasses_are_answered_by_any_of_their_classes(winner, superclass):
    probabilities = np.eye(4)[[winner]]
    assert answer_as(probabilities, np.array([4, 4, 7, -1])).tolist() == [superclass]


def test_a_class_without_superclass_is_never_right():
    probabilities = np.array([[0.2, 0.8], [0.9, 0.1]])
    answered = answer_as(probabilities, np.array([0, -1]))
    assert accuracy(answered, np.array([0, 0])) == 50.0
