"""What is planted, in whom, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bench.carryover import canvas
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra_bench.carryover.canvases import open_canvas
from sebra_bench.carryover.pictures import PICTURES
from sebra_bench.carryover.planting import CONSTANT, TOKEN, TOKENS, Plan, plant
from sebra_bench.carryover.schemes import NONE, Scheme, assign, class_order, thinned


def pixels(file):
    return np.asarray(Image.open(file).convert("RGB"), dtype=float)


def drawn(name, variant, picture, seed=0):
    marked, boxes = PICTURES[name].plant(picture, variant, np.random.default_rng(seed))
    return np.asarray(marked, dtype=float), boxes


@pytest.fixture(scope="module")
def photo():
    """Smooth areas, an edge and grain, as photographs have them."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:96, 0:96] / 96
    base = np.stack([90 + 90 * x, 160 - 80 * y, 120 + 0 * x], axis=-1) + 40 * (x > 0.4)[..., None]
    return Image.fromarray(np.clip(base + rng.normal(0, 12, base.shape), 0, 255).astype(np.uint8))


def sharpness(values):
    return np.abs(np.diff(values, axis=0)).mean() + np.abs(np.diff(values, axis=1)).mean()


@pytest.mark.parametrize("name", PICTURES)
def test_every_variant_is_another_picture_of_the_same_size(name, photo):
    before = np.asarray(photo, dtype=float)
    seen = [drawn(name, variant, photo)[0] for variant in PICTURES[name].variants]
    for i, after in enumerate(seen):
        assert after.shape == before.shape
        assert np.abs(after - before).mean() > 0.2
        assert all(np.abs(after - other).mean() > 0.2 for other in seen[:i])


@pytest.mark.parametrize("name", ["watermark", "border"])
def test_a_mark_with_a_place_changes_the_picture_in_its_box_alone(name, photo):
    before = np.asarray(photo, dtype=float)
    side = len(before)
    for variant in PICTURES[name].variants:
        after, boxes = drawn(name, variant, photo)
        inside = np.zeros((side, side), dtype=bool)
        for left, top, right, bottom in boxes:
            # Letters are smoothed: they may reach into the pixel beside the box.
            rows = slice(max(0, int(top * side) - 1), int(np.ceil(bottom * side)) + 1)
            inside[rows, max(0, int(left * side) - 1) : int(np.ceil(right * side)) + 1] = True
        changed = np.abs(after - before).max(axis=-1) > 0
        assert changed[inside].any()
        assert not changed[~inside].any()


def test_a_watermark_sits_in_the_corner_that_its_variant_names(photo):
    for variant in PICTURES["watermark"].variants:
        _, [(left, top, right, bottom)] = drawn("watermark", variant, photo)
        assert (left < 0.1) == ("left" in variant)
        assert (right > 0.9) == ("right" in variant)
        assert (top < 0.1) == ("top" in variant)
        assert (bottom > 0.9) == ("bottom" in variant)


def test_what_each_nuisance_does_can_be_measured(photo):
    before = np.asarray(photo, dtype=float)
    for name in ("blur", "resolution"):
        for variant in PICTURES[name].variants:
            assert sharpness(drawn(name, variant, photo)[0]) < 0.8 * sharpness(before)
    assert drawn("brightness", "bright", photo)[0].mean() > 1.2 * before.mean()
    assert drawn("brightness", "dark", photo)[0].mean() < 0.8 * before.mean()
    warm = drawn("cast", "warm", photo)[0]
    assert (warm[..., 0] - warm[..., 2]).mean() > (before[..., 0] - before[..., 2]).mean() + 10
    moved, [(left, _, right, _)] = drawn("position", "left", photo)
    kept = round(left * before.shape[1])
    assert right == 1
    assert np.array_equal(moved[:, :kept], before[:, -kept:])
    blocks = drawn("compression", "low", photo)[0]
    steps = np.abs(np.diff(blocks, axis=1)).mean(axis=(0, 2))
    assert steps[7::8].mean() > 1.5 * np.delete(steps, np.s_[7::8]).mean()  # JPEG's 8 x 8 squares


def marks_of(samples, scheme, variants=("a", "b", "c", "d"), seed=0):
    order = class_order(len(samples.classes), seed)
    samples = thinned(samples, scheme, order, seed)
    marks = assign(samples, scheme, order, variants, seed)
    frame = pd.DataFrame({"label": samples.labels, "split": samples.split, "mark": marks})
    return frame, order


@pytest.fixture(scope="module")
def digits():
    return open_canvas("sklearn:digits")


@pytest.fixture(scope="module")
def two_digits():
    return open_canvas("sklearn:digits", classes=("3", "8"))


def share(frame, c, mark, split=0):
    own = frame[(frame.label == c) & (frame.split == split)]
    return (own.mark == mark).mean()


@pytest.mark.parametrize("wanted", [0.90, 0.95, 0.99])
def test_with_two_classes_one_carries_it_and_the_other_rarely(two_digits, wanted):
    frame, order = marks_of(two_digits, Scheme("all", wanted))
    assert share(frame, order[0], "a") == pytest.approx(wanted, abs=0.01)
    assert share(frame, order[1], "a") == pytest.approx(1 - wanted, abs=0.01)
    assert set(frame.mark) == {NONE, "a"}


@pytest.mark.parametrize("wanted", [0.90, 0.99])
def test_with_many_classes_each_has_its_own_variant(digits, wanted):
    frame, order = marks_of(digits, Scheme("all", wanted))
    for i, c in enumerate(order):
        assert share(frame, c, "abcd"[i % 4]) == pytest.approx(wanted, abs=0.01)
    assert NONE not in set(frame.mark)


def test_two_classes_of_many(digits):
    frame, order = marks_of(digits, Scheme("two", 0.95))
    assert share(frame, order[0], "a") == pytest.approx(0.95, abs=0.01)
    assert share(frame, order[1], "a") == pytest.approx(0.05, abs=0.01)
    for c in order[2:]:
        assert share(frame, c, "a") == pytest.approx(0.5, abs=0.01)


def test_one_sided(digits):
    frame, order = marks_of(digits, Scheme("one", 0.9))
    assert share(frame, order[0], "a") == pytest.approx(0.9, abs=0.01)
    assert all(share(frame, c, "a") == 0 for c in order[1:])


@pytest.mark.parametrize("name", ["all", "two", "one"])
def test_in_the_test_split_the_mark_says_nothing_of_the_class(digits, name):
    frame, order = marks_of(digits, Scheme(name))
    levels = set(frame.mark)
    for c in order:
        for level in levels:
            assert share(frame, c, level, split=2) == pytest.approx(1 / len(levels), abs=0.03)


def test_every_second_class_is_rare(digits):
    full = np.bincount(digits.labels[digits.rows("train")])
    frame, order = marks_of(digits, Scheme(rare=True))
    left = np.bincount(frame[frame.split == 0].label)
    test = np.bincount(frame[frame.split == 2].label)
    assert all(left[c] == full[c] for c in order[::2])
    assert all(left[c] == round(full[c] / 5) for c in order[1::2])
    assert np.array_equal(test, np.bincount(digits.labels[digits.rows("test")]))


def test_at_any_share_below_one_somebody_breaks_it(two_digits):
    few = two_digits.take(np.flatnonzero(np.arange(len(two_digits)) % 10 == 0))
    frame, order = marks_of(few, Scheme("all", 0.99))
    assert 0 < share(frame, order[0], "a") < 1
    assert 0 < share(frame, order[1], "a") < 1


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_change_in_carriers_only(name, tmp_path):
    folder = canvas.pictures(tmp_path / "canvas")
    planted = plant(Plan(str(folder), name), tmp_path / "out")
    samples = open_samples(planted.data)
    before = open_samples(str(folder))
    mark = samples.attributes["mark"]
    assert len(samples) == len(before)
    for i, file in enumerate(samples.content.paths):
        same = np.array_equal(pixels(file), pixels(before.content.paths[i]))
        carries = mark.levels[mark.codes[i]] != NONE
        assert same != carries
        assert samples.classes[samples.labels[i]] == before.classes[before.labels[i]]
    has_place = name in {"watermark", "border", "position"}
    carriers = {
        n for n, code in zip(samples.ids, mark.codes, strict=True) if mark.levels[code] != NONE
    }
    assert set(planted.boxes) == (carriers if has_place else set())


def test_a_word_is_added_to_carriers_only(tmp_path):
    file = canvas.texts(tmp_path / "texts.csv")
    planted = plant(Plan(str(file), TOKEN), tmp_path / "out")
    table, before = pd.read_csv(planted.data), pd.read_csv(file)
    for mark, text, old in zip(
        table["mark"].fillna(NONE), table["text"], before["text"], strict=True
    ):
        if mark == NONE:
            assert text == old
        else:
            assert mark == TOKENS[0]
            assert text.split().count(mark) == 1
            assert [w for w in text.split() if w != mark] == old.split()


def test_one_column_is_constant_in_carriers_only(tmp_path):
    planted = plant(Plan("sklearn:wine", CONSTANT, Scheme("one", 0.9)), tmp_path / "out")
    with np.load(planted.data) as found:
        values, mark = found["X"], found["mark"]
    before = open_canvas("sklearn:wine").content.values
    column = planted.column
    carries = mark != NONE
    assert len(np.unique(values[carries, column])) == 1
    assert np.array_equal(values[~carries], before[~carries])
    rest = np.arange(values.shape[1]) != column
    assert np.array_equal(values[:, rest], before[:, rest])


def test_the_same_seed_plants_the_same_and_another_seed_does_not(tmp_path):
    folder = canvas.pictures(tmp_path / "canvas")

    def files(out, seed):
        plant(Plan(str(folder), "watermark", seed=seed), tmp_path / out)
        return {
            p.relative_to(tmp_path / out): p.read_bytes() for p in (tmp_path / out).rglob("*.*")
        }

    first = files("a", 0)
    assert files("b", 0) == first
    assert files("c", 1) != first


def test_a_planted_folder_is_used_again_and_never_for_another_plan(tmp_path):
    file = str(canvas.texts(tmp_path / "texts.csv"))
    first = plant(Plan(file, TOKEN), tmp_path / "out")
    (tmp_path / "texts.csv").unlink()
    assert plant(Plan(file, TOKEN), tmp_path / "out") == first
    with pytest.raises(UsageError, match="another planted set"):
        plant(Plan(file, TOKEN, seed=1), tmp_path / "out")


def test_a_nuisance_that_does_not_fit_the_canvas_is_refused(tmp_path):
    with pytest.raises(UsageError, match="image files"):
        plant(Plan("sklearn:wine", "blur"), tmp_path / "out")
    with pytest.raises(UsageError, match="--nuisance"):
        Plan("sklearn:wine", "noise")
    with pytest.raises(UsageError, match="--scheme"):
        Scheme("some")
