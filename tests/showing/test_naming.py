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
from sebra_tools.naming import name_patterns
from sebra_tools.words import Family, words_of

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


def test_a_value_that_followers_share_is_named():
    labels, follows = sides()
    values = np.random.default_rng(0).normal(size=(2 * N, 3)) * 5
    values[follows, 1] = 2.5
    names = [(f"{n} is higher", f"{n} is lower", f"{n} is about {{:.3g}}") for n in "abc"]
    (word,) = words_of([Family("column", values, names)], follows, labels, CLASSES)
    assert word.phrases["cat"] == "b is about 2.5"


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


def stamped(picture):
    ImageDraw.Draw(picture).text((28, 36), "stock", fill=(230, 230, 230))
    return picture


def blurred(picture):
    return picture.resize((6, 6)).resize((48, 48), Image.Resampling.BICUBIC)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (tinted, {"colour"}),
        (framed, {"border"}),
        (stamped, {"bottom right"}),
        (blurred, {"sharpness"}),
        (lambda picture: picture.point(lambda v: v // 2), {"light"}),
    ],
    ids=["colour", "frame", "text", "blur", "light"],
)
def test_a_planted_mark_is_named_by_its_kind(change, kinds):
    found = named(pictures(change))
    assert {word["kind"] for word in found[:2]} & kinds, found
    assert found[0]["area"] > 0.8


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
