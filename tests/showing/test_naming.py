"""Words for a pattern: the right kind, a figure from other samples, nothing where none tells."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageDraw

from sebra.engine.session import Session
from sebra.measuring.ranks import areas
from sebra.ranking.ranking import Ranking
from sebra.runs.meter import Meter
from sebra.samples.objects import as_data
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Source
from sebra_tools.marks import likeness_of
from sebra_tools.naming import name_patterns
from sebra_tools.words import Family, clear_sides, words_of

N, BREAK = 60, 12  # samples of a class, and those of them that break the pattern
CLASSES = ("cat", "dog")


def sides():
    """Labels, and who follows: in each class all but the first few."""
    labels = np.repeat([0, 1], N)
    return labels, np.tile(np.arange(N) >= BREAK, 2)


def test_an_area_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    values, side = rng.integers(0, 5, (30, 3)).astype(float), rng.random(30) < 0.4
    for column, found in zip(values.T, areas(values, side), strict=True):
        pairs = [(a > b) + 0.5 * (a == b) for a in column[side] for b in column[~side]]
        assert found == pytest.approx(np.mean(pairs))


def test_the_column_that_tells_is_named_with_its_direction_in_each_class():
    labels, follows = sides()
    values = np.random.default_rng(0).normal(size=(2 * N, 20))
    values[:, 7] += 4 * np.where(labels == 0, follows, ~follows)
    names = [(f"{i} more", f"{i} less") for i in range(20)]
    (word,) = words_of([Family("column", values, names)], follows, labels, CLASSES)
    assert word.phrases == {"cat": "7 more", "dog": "7 less"}
    assert word.area > 0.95


def test_noise_gets_no_word_however_many_columns_there_are():
    """Chosen and measured on the same samples, the best of a thousand columns would look good."""
    labels, follows = sides()
    for seed in range(5):
        values = np.random.default_rng(seed).normal(size=(2 * N, 1000))
        names = [("more", "less")] * 1000
        many = Family("many", values, names)
        view = Family("view", values[:, :30], names, together=True)
        assert words_of([many, view], follows, labels, CLASSES) == []
        assert np.abs(areas(values, follows) - 0.5).max() > 0.15


def test_the_clear_half_of_a_large_side_speaks_for_it():
    """As on UrbanCars: half of those said to break a pattern follow it, near the middle."""
    rng = np.random.default_rng(0)
    labels, truth = np.zeros(1000, dtype=int), np.arange(1000) >= 60
    share = np.where(truth, 0.9, 0.1) + 0.05 * rng.random(1000)
    share[60:120] = 0.4 + 0.05 * rng.random(60)
    values = np.where(truth, 1.0, -1.0)[:, None] + rng.normal(size=(1000, 1)) / 10
    family = Family("column", values, [("more", "less")])
    (word,) = words_of([family], share, labels, ("cat",))
    assert word.area > 0.99
    assert areas(values, share > 0.5)[0] < 0.8
    clear = clear_sides(share, labels)
    assert clear[:60].all()
    assert not clear[60:120].any()
    small, few = np.array([0.9, 0.9, 0.6, 0.1, 0.4]), np.zeros(5, dtype=int)
    assert clear_sides(small, few).all()  # of few samples none can be spared


def test_one_class_may_say_alone_what_the_others_do_not():
    labels = np.repeat([0, 1], 300)
    follows = np.tile(np.arange(300) >= 40, 2)
    values = np.random.default_rng(0).normal(size=(600, 1))
    values[(labels == 0) & follows] += 3
    (word,) = words_of([Family("column", values, [("more", "less")])], follows, labels, CLASSES)
    assert word.phrases == {"cat": "more"}
    assert word.area > 0.9


def test_a_value_that_followers_share_is_named():
    labels, follows = sides()
    values = np.random.default_rng(0).normal(size=(2 * N, 3)) * 5
    values[follows, 1] = 2.5
    names = [(f"{n} is higher", f"{n} is lower", f"{n} is about {{:.3g}}") for n in "abc"]
    (word,) = words_of([Family("column", values, names)], follows, labels, CLASSES)
    assert word.phrases["cat"] == "b is about 2.5"


def test_a_value_that_all_followers_hold_is_named_where_two_samples_lack_it():
    """One of them chooses the words, the other is on the far side of the value."""
    labels = np.repeat([0, 1], 35)
    follows = np.tile(np.arange(35) >= 2, 2)
    values = np.random.default_rng(1).normal(size=(70, 4))
    values[follows, 2] = 0.4
    values[~follows, 2] = [-1.0, 2.0, 2.0, -1.0]
    names = [(f"{n} is higher", f"{n} is lower", f"{n} is about {{:.3g}}") for n in "abcd"]
    (word,) = words_of([Family("column", values, names)], follows, labels, CLASSES)
    assert set(word.phrases.values()) == {"c is about 0.4"}
    assert word.area == 1


def named(data, **options):
    """The words of one pattern: whoever is at the end of a class breaks it."""
    prepared = prepare(Source(as_data(data), device="cpu", **options), Session(), Meter())
    part = prepared.readable("train")
    labels, follows = sides()
    np.testing.assert_array_equal(part.labels, labels)
    table = pd.DataFrame({"id": part.ids, "stage_1": follows.astype(float)})
    ranking = Ranking(table, {"patterns": [{"share": {}}]})
    name_patterns(ranking, prepared)
    return ranking.details["patterns"][0]["words"]


def pictures(change):
    """Noise pictures; followers of class cat and breakers of class dog are changed."""
    labels, follows = sides()
    out = []
    for i, carries in enumerate(np.where(labels == 0, follows, ~follows)):
        rng = np.random.default_rng(i)
        small = rng.integers(60, 180, (12, 12, 3)).astype(np.uint8)
        picture = Image.fromarray(small).resize((48, 48), Image.Resampling.BICUBIC)
        out.append(change(picture) if carries else picture)
    return out, [CLASSES[c] for c in labels]


def tinted(picture):
    return Image.fromarray((np.asarray(picture) * [0.6, 0.9, 1.0]).astype(np.uint8))


def framed(picture):
    ImageDraw.Draw(picture).rectangle((0, 0, 47, 47), outline=(200, 30, 30), width=3)
    return picture


def labelled(picture):
    ImageDraw.Draw(picture).rectangle((26, 38, 46, 46), fill=(250, 220, 40))
    return picture


def stamped(picture):
    ImageDraw.Draw(picture).text((28, 36), "stock", fill=(230, 230, 230))
    return picture


def blurred(picture):
    return picture.resize((6, 6)).resize((48, 48), Image.Resampling.BICUBIC)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (tinted, {"colour"}),
        (framed, {"mark"}),
        (labelled, {"mark"}),
        (stamped, {"bottom right"}),
        (blurred, {"sharpness"}),
        (lambda picture: picture.point(lambda v: v // 2), {"light"}),
    ],
    ids=["colour", "frame", "label", "text", "blur", "light"],
)
def test_a_planted_mark_is_named_by_its_kind(change, kinds):
    found = named(pictures(change))
    assert {word["kind"] for word in found[:2]} & kinds, found
    assert found[0]["area"] > 0.8


def test_a_mark_is_the_same_from_picture_to_picture():
    found = named(pictures(labelled))
    assert found[0]["phrases"] == {
        "cat": "the same mark at the bottom right", "dog": "no mark at the bottom right",
    }  # fmt: skip
    rng = np.random.default_rng(0)
    varied, other = rng.normal(size=(50, 30)), rng.normal(3, 1, size=(20, 30))
    around = [varied, rng.normal(size=(20, 30))]
    assert likeness_of([varied, other], around) is None  # they differ, but neither is constant
    dark = [around[0], around[1] * 0.1]
    assert likeness_of([varied, other * 0.1], dark) is None  # all of the picture is constant
    marked, alike = likeness_of([varied, other * 0.1], around)
    assert marked == 1
    assert alike[1].min() > alike[0].max()


def test_files_say_where_they_are_from(tmp_path):
    labels, follows = sides()
    paths = []
    for i, (c, follow) in enumerate(zip(labels, follows, strict=True)):
        source = ("agency", "camera")[int((c == 0) == follow)]
        path = tmp_path / source / CLASSES[c] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 255, (20, 20, 3), np.uint8)).save(path)
        paths.append(path)
    found = named((paths, [CLASSES[c] for c in labels]))
    assert found[0]["kind"] == "file"
    assert found[0]["phrases"]["cat"] in ("from folder camera", "not from folder agency")


def test_texts_columns_and_metadata_have_words_of_their_own(tmp_path):
    import encoders

    labels, follows = sides()
    carries = np.where(labels == 0, follows, ~follows)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(encoders.WORDS[:9], 6)) for _ in labels]
    texts = [f"{t} guitar" if c else t for t, c in zip(texts, carries, strict=True)]
    frame = pd.DataFrame({"text": texts, "label": [CLASSES[c] for c in labels]})
    found = named(frame, backbone=str(encoders.tiny(tmp_path / "tiny")))
    assert found[0]["phrases"] == {"cat": "contains “guitar”", "dog": "lacks “guitar”"}
    table = pd.DataFrame(rng.normal(size=(2 * N, 3)), columns=["age", "income", "visits"])
    table["income"] += 5 * carries
    table = table.assign(label=frame["label"], scanner=np.where(carries, "old", "new"))
    found = named(table)
    kinds = {word["kind"]: word["phrases"]["cat"] for word in found}
    assert kinds["column"] == "income is higher"
    assert kinds["metadata scanner"] in ("scanner “old”", "scanner not “new”")
