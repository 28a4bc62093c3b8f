"""Scores of hand-made predictions, with every expected figure worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sebra.errors import UsageError
from sebra.measuring.groups import score

TWO = {"background": ["urban", "country"], "object": ["urban", "country"]}
KINDS = ("urban", "country")


def predictions(samples, rows, hits):
    """Right for the first `hits[group]` samples of each group, the other class for the rest."""
    left = dict(hits)
    out = []
    for row in rows:
        values = [
            a.levels[a.codes[row]] if a.codes[row] >= 0 else None for a in attributes(samples)
        ]
        key = (samples.classes[samples.labels[row]], *values)
        right = left.get(key, 0) > 0
        left[key] = left.get(key, 0) - 1
        label = int(samples.labels[row])
        out.append(label if right else (label + 1) % len(samples.classes))
    return np.array(out)


def attributes(samples):
    return list(samples.attributes.values())


@pytest.fixture
def cars(make_samples):
    """UrbanCars' structure: 90.25 / 4.75 / 4.75 / 0.25 % in training, 40 of each group in test."""
    train = {(True, True): 361, (True, False): 19, (False, True): 19, (False, False): 1}
    other = {"urban": "country", "country": "urban"}
    rows = []
    for kind in KINDS:
        for (background, thing), n in train.items():
            values = (kind if background else other[kind], kind if thing else other[kind])
            rows += [(n, "train", kind, *values), (40, "test", kind, *values)]
    return make_samples(rows, KINDS, TWO)


# Correct of 40, by class, background, object.
CAR_HITS = {
    ("urban", "urban", "urban"): 40,
    ("urban", "urban", "country"): 36,
    ("urban", "country", "urban"): 20,
    ("urban", "country", "country"): 4,
    ("country", "country", "country"): 38,
    ("country", "country", "urban"): 32,
    ("country", "urban", "country"): 24,
    ("country", "urban", "urban"): 10,
}


@pytest.fixture
def car_scores(cars):
    rows = cars.rows("test")
    return score(cars, rows, predictions(cars, rows, CAR_HITS))


# 361 (100 + 95) + 19 (90 + 80) + 19 (50 + 60) + 1 (10 + 25), over 800 training samples.
CAR_ID = (361 * 195 + 19 * 170 + 19 * 110 + 35) / 800


def test_id_accuracy_weighs_groups_by_their_training_share(car_scores):
    assert car_scores.id_accuracy == pytest.approx(CAR_ID)


def test_averages_over_samples_classes_and_groups(car_scores):
    assert car_scores.average == pytest.approx(100 * 204 / 320)
    assert car_scores.class_average == pytest.approx(100 * 204 / 320)
    assert car_scores.balanced_average == pytest.approx(510 / 8)
    assert car_scores.per_class == {"urban": pytest.approx(62.5), "country": pytest.approx(65)}


def test_gaps_are_group_minus_id_accuracy(car_scores):
    assert car_scores.gaps == {
        "background": pytest.approx(55 - CAR_ID),
        "object": pytest.approx(85 - CAR_ID),
        "background+object": pytest.approx(17.5 - CAR_ID),
    }
    assert car_scores.average_gap == pytest.approx((55 + 85 + 17.5) / 3 - CAR_ID)


def test_worst_group_has_a_name_a_person_reads(car_scores):
    assert car_scores.worst_group == pytest.approx(10)
    assert car_scores.worst_group_name == "urban, background=country, object=country"


def test_groups_carry_counts_and_alignment(car_scores):
    group = {g.name: g for g in car_scores.groups}["country, background=urban, object=country"]
    assert (group.n_test, group.n_train, group.small) == (40, 19, False)
    assert group.alignment == {"background": "conflicting", "object": "aligned"}
    assert group.accuracy == pytest.approx(60)
    assert len(car_scores.groups) == 8


def test_cues_say_what_the_prediction_follows(cars):
    rows = cars.rows("test")
    follows_background = cars.attributes["background"].codes[rows]
    cues = score(cars, rows, follows_background).cues
    assert cues == {"label": 50.0, "background": 100.0, "object": 50.0}


def test_to_dict_is_json_and_table_has_a_row_per_group(car_scores):
    found = json.loads(json.dumps(car_scores.to_dict(), allow_nan=False))
    assert found["worst_group"] == car_scores.worst_group
    assert found["groups"][0]["class"] == "urban"
    table = car_scores.table
    assert table["accuracy"].min() == pytest.approx(10)
    assert set(table["background"]) == {"urban", "country"}


def test_classes_count_the_same_in_a_gap_whatever_their_test_size(make_samples):
    samples = make_samples(
        [
            (30, "train", "a", "x"),
            (10, "train", "b", "y"),
            (20, "test", "a", "x"),
            (80, "test", "a", "y"),
            (20, "test", "b", "y"),
            (20, "test", "b", "x"),
        ],
        ["a", "b"],
        {"colour": ["x", "y"]},
    )
    hits = {("a", "x"): 20, ("a", "y"): 40, ("b", "y"): 10, ("b", "x"): 20}
    rows = samples.rows("test")
    scores = score(samples, rows, predictions(samples, rows, hits))
    id_accuracy = (30 * 100 + 10 * 50) / 40
    assert scores.id_accuracy == pytest.approx(id_accuracy)
    assert scores.gaps == {"colour": pytest.approx((50 + 100) / 2 - id_accuracy)}


def test_where_a_small_group_may_be_the_worst_its_place_is_a_range(make_samples):
    samples = make_samples(
        [
            (9, "train", "a", "x"),
            (9, "train", "b", "y"),
            (1, "train", "b", "x"),
            (20, "test", "a", "x"),
            (20, "test", "b", "y"),
            (19, "test", "b", "x"),
        ],
        ["a", "b"],
        {"colour": ["x", "y"]},
    )
    hits = {("a", "x"): 15, ("b", "y"): 20, ("b", "x"): 0}
    rows = samples.rows("test")
    predicted = predictions(samples, rows, hits)
    scores = score(samples, rows, predicted)
    assert scores.worst_group is None
    low, high = scores.worst_group_range
    assert low == pytest.approx(0, abs=1e-9)
    assert high == pytest.approx(16.8, abs=0.1)  # Wilson: none of 19
    assert scores.summary()["worst group"] == "0 to 17: groups too small"
    assert [g.name for g in scores.groups if g.small] == ["b, colour=x"]
    assert "b, colour=x (small)" in scores._repr_html_()
    assert score(samples, rows, predicted, min_group=19).worst_group == 0
    assert "worst_group" not in score(samples, rows, predicted, min_group=21).to_dict()


def test_a_small_group_that_is_surely_better_leaves_the_worst_as_it_is(make_samples):
    samples = make_samples(
        [
            (9, "train", "a", "x"),
            (9, "train", "b", "y"),
            (40, "test", "a", "x"),
            (19, "test", "b", "y"),
        ],
        ["a", "b"],
        {"colour": ["x", "y"]},
    )
    rows = samples.rows("test")
    for right, name in ((20, "a, colour=x"), (40, None)):
        scores = score(
            samples, rows, predictions(samples, rows, {("a", "x"): right, ("b", "y"): 19})
        )
        assert scores.worst_group_name == name
        assert (scores.worst_group_range is None) == (name is not None)


def test_nobody_is_right_by_having_nobody_to_ask(make_samples):
    """A training group without a test sample may be the worst."""
    samples = make_samples(
        [
            (9, "train", "a", "x"),
            (9, "train", "b", "y"),
            (1, "train", "b", "x"),
            (40, "test", "a", "x"),
            (40, "test", "b", "y"),
        ],
        ["a", "b"],
        {"colour": ["x", "y"]},
    )
    rows = samples.rows("test")
    scores = score(samples, rows, samples.labels[rows])
    assert scores.worst_group is None
    assert scores.worst_group_range == (0.0, 100.0)


def test_empty_test_groups_are_absent_and_their_weight_is_shared(make_samples):
    samples = make_samples(
        [
            (6, "train", "a", "x"),
            (2, "train", "b", "y"),
            (50, "train", "b", "z"),
            (20, "test", "a", "x"),
            (20, "test", "b", "y"),
        ],
        ["a", "b"],
        {"colour": ["x", "y", "z"]},
    )
    rows = samples.rows("test")
    predicted = predictions(samples, rows, {("a", "x"): 20, ("b", "y"): 0})
    scores = score(samples, rows, predicted)
    assert [g.name for g in scores.groups] == ["a, colour=x", "b, colour=y"]
    assert scores.id_accuracy == pytest.approx(75)


def test_without_attributes_there_are_classes_only(make_samples):
    samples = make_samples(
        [(5, "train", "a"), (5, "train", "b"), (30, "test", "a"), (10, "test", "b")],
        ["a", "b"],
        {},
    )
    rows = samples.rows("test")
    found = score(samples, rows, np.zeros(40, dtype=int)).to_dict()
    assert found["id_accuracy"] == found["average"] == 75
    assert found["class_average"] == 50
    assert found["per_class"] == {"a": 100.0, "b": 0.0}
    assert found["cues"] == {"label": 75.0}
    assert found["gaps"] == {}
    assert not {"worst_group", "worst_group_name", "average_gap"} & set(found)


def test_rows_with_missing_attributes_count_in_the_average_alone(make_samples):
    samples = make_samples(
        [
            (3, "train", "a", "x"),
            (3, "train", "b", "y"),
            (50, "train", "b", None),
            (20, "test", "a", "x"),
            (20, "test", "b", "y"),
            (40, "test", "b", None),
        ],
        ["a", "b"],
        {"colour": ["x", "y"]},
    )
    rows = samples.rows("test")
    hits = {("a", "x"): 20, ("b", "y"): 10}
    scores = score(samples, rows, predictions(samples, rows, hits))
    assert scores.average == pytest.approx(100 * 30 / 80)
    assert scores.id_accuracy == pytest.approx(75)
    assert sum(g.n_test for g in scores.groups) == 40
    assert scores.worst_group == 50
    assert scores.gaps == {}
    # Of the 40 samples that show a colour, the ten wrong ones followed the other.
    assert scores.cues["colour"] == pytest.approx(75)


def test_attributes_in_the_test_split_alone_give_groups_but_no_gaps(make_samples):
    samples = make_samples(
        [
            (9, "train", "a", None),
            (9, "train", "b", None),
            (20, "test", "a", "x"),
            (20, "test", "b", "x"),
        ],
        ["a", "b"],
        {"colour": ["x", "y"]},
    )
    rows = samples.rows("test")
    scores = score(samples, rows, np.zeros(40, dtype=int))
    assert scores.worst_group_name == "b, colour=x"
    assert scores.id_accuracy is None
    assert scores.gaps == {}
    assert scores.cues == {"label": 50.0}
    assert scores.groups[0].alignment == {}


def test_a_layout_may_fix_what_is_aligned(make_samples):
    rows = [
        (9, "train", "a", "y"),
        (9, "train", "b", "x"),
        (20, "test", "a", "x"),
        (20, "test", "a", "y"),
    ]
    samples = make_samples(rows, ["a", "b"], {"c": ["x", "y"]}, {"c": (0, 1)})
    test = samples.rows("test")
    scores = score(samples, test, predictions(samples, test, {("a", "x"): 20, ("a", "y"): 5}))
    assert scores.id_accuracy == pytest.approx(25)
    assert scores.gaps == {"c": pytest.approx(0)}


def test_three_attributes_have_seven_gaps_each_of_its_own_pattern(make_samples):
    names = {"p": ["0", "1"], "q": ["0", "1"], "r": ["0", "1"]}
    train = [(10, "train", "a", "0", "0", "0"), (10, "train", "b", "1", "1", "1")]
    patterns = [f"{i:03b}" for i in range(8)]
    test = [(20, "test", "a", *bits) for bits in patterns]
    samples = make_samples(train + test, ["a", "b"], names)
    hits = {("a", *bits): 20 - 2 * i for i, bits in enumerate(patterns)}
    rows = samples.rows("test")
    scores = score(samples, rows, predictions(samples, rows, hits))
    assert scores.id_accuracy == pytest.approx(100)
    assert scores.gaps == {
        "r": pytest.approx(-10),
        "q": pytest.approx(-20),
        "q+r": pytest.approx(-30),
        "p": pytest.approx(-40),
        "p+r": pytest.approx(-50),
        "p+q": pytest.approx(-60),
        "p+q+r": pytest.approx(-70),
    }
    assert list(scores.gaps)[:3] == ["p", "q", "r"]


def test_more_than_three_attributes_have_singles_pairs_and_all(make_samples):
    names = {name: ["0", "1"] for name in "pqrs"}
    rows = [(2, "train", "a", *"0000"), (2, "train", "b", *"1111")]
    rows += [(20, "test", "a", *f"{i:04b}") for i in range(16)]
    samples = make_samples(rows, ["a", "b"], names)
    test = samples.rows("test")
    hits = {("a", *"0000"): 20, ("a", *"1111"): 8}
    gaps = score(samples, test, predictions(samples, test, hits)).gaps
    assert len(gaps) == 4 + 6 + 1
    assert gaps["all"] == pytest.approx(-60)
    assert gaps["p+s"] == pytest.approx(-100)


def test_more_than_two_classes_pool_conflicting_values_and_read_cues_by_class(make_samples):
    colours = ["x", "y", "z", "w"]
    rows = [(9, "train", c, v) for c, v in zip("abc", "xyz", strict=True)]
    rows += [(30, "test", "a", "x"), (30, "test", "a", "y"), (10, "test", "a", "z")]
    rows += [(20, "test", "a", "w")]
    samples = make_samples(rows, ["a", "b", "c"], {"colour": colours})
    test = samples.rows("test")
    # x: all right. y: 20 of 30 follow y to class b, 10 are right. z: all go to b. w: all right.
    predicted = np.array([0] * 30 + [1] * 20 + [0] * 10 + [1] * 10 + [0] * 20)
    scores = score(samples, test, predicted)
    assert scores.gaps == {"colour": pytest.approx(100 * 30 / 60 - 100)}
    # w belongs to no class; of the other 70 samples 30 + 20 follow their colour.
    assert scores.cues["colour"] == pytest.approx(100 * 50 / 70)
    assert scores.worst_group_range == (0.0, pytest.approx(27.8, abs=0.1))  # b and c are not seen


def test_a_value_that_is_aligned_in_every_class_is_no_cue(make_samples):
    samples = make_samples(
        [(5, "train", "a", "x"), (5, "train", "b", "x"), (20, "test", "a", "x")],
        ["a", "b"],
        {"colour": ["x", "y"]},
    )
    assert score(samples, samples.rows("test"), np.zeros(20, dtype=int)).cues == {"label": 100.0}


def test_many_attributes_do_not_overflow_the_group_number(make_samples):
    names = {f"t{i}": ["0", "1"] for i in range(80)}
    samples = make_samples(
        [
            (5, "train", "a", *"0" * 80),
            (5, "train", "b", *"1" * 80),
            (20, "test", "a", *"0" * 80),
            (20, "test", "a", "1", *"0" * 79),
        ],
        ["a", "b"],
        names,
    )
    scores = score(samples, samples.rows("test"), np.array([0] * 20 + [1] * 20))
    assert [g.accuracy for g in scores.groups] == [100, 0]
    assert scores.gaps == {"t0": pytest.approx(-100)}


def test_html_escapes_names_from_the_data(make_samples):
    samples = make_samples(
        [(5, "train", "<b>", "x"), (5, "train", "b", "y"), (20, "test", "<b>", "x")],
        ["<b>", "b"],
        {"<script>": ["x", "y"]},
    )
    html = score(samples, samples.rows("test"), np.zeros(20, dtype=int))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;=x" in html


def test_nothing_to_evaluate_is_one_clear_line(make_samples):
    samples = make_samples([(5, "train", "a"), (5, "train", "b")], ["a", "b"], {})
    with pytest.raises(UsageError, match=r"toy\.csv: no samples to evaluate"):
        score(samples, samples.rows("test"), np.zeros(0, dtype=int))


def test_predictions_that_do_not_fit_are_refused(cars):
    rows = cars.rows("test")
    with pytest.raises(ValueError, match="3 predictions for 320 samples"):
        score(cars, rows, np.zeros(3, dtype=int))
    with pytest.raises(ValueError, match="below 2"):
        score(cars, rows, np.full(len(rows), 2))
