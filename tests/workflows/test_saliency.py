"""Maps show where both sides of a pattern differ, and nothing where the evidence is weak."""

from __future__ import annotations

import numpy as np

import miniatures
from sebra.runs.folder import RunFolder
from sebra.samples.table import ImageArray
from sebra.workflows.prepared import Source
from sebra.workflows.rank import RankOptions, rank
from sebra.workflows.saliency import FILE, load_saliency, save_saliency
from sebra_tools.places import place_of


def noise(n=60, side=56, seed=0):
    """Pictures of smooth noise, no two alike."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, side // 4, side // 4, 3))
    return coarse.repeat(4, axis=1).repeat(4, axis=2).astype(np.uint8)


def content(pixels):
    return ImageArray(pixels, np.arange(len(pixels)))


def test_the_peak_is_where_the_mark_is():
    pixels = noise()
    pixels[:50, 44:52, 30:50] = 240
    heat, mean = place_of(content(pixels), np.arange(50), np.arange(50, 60))
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    assert 44 <= (row + 0.5) * 4 <= 52
    assert 30 <= (column + 0.5) * 4 <= 50
    assert heat.max() == 1
    assert heat.min() >= 0
    assert mean.dtype == np.uint8
    assert mean[46, 40].min() > 200


def test_it_is_found_where_those_that_break_it_carry_the_mark():
    pixels = noise()
    pixels[54:, :6, :6] = 0
    heat, _ = place_of(content(pixels), np.arange(54), np.arange(54, 60))
    assert max(np.unravel_index(heat.argmax(), heat.shape)) <= 1


def test_sides_that_do_not_differ_have_no_map():
    found = [
        place_of(content(noise(seed=seed)), np.arange(45), np.arange(45, 60)) for seed in range(20)
    ]
    assert sum(one is not None for one in found) <= 2


def test_two_or_three_samples_on_a_side_are_enough_for_a_clear_mark_and_one_is_not():
    pixels = noise()
    pixels[:58, 44:52, 30:50] = 240
    assert place_of(content(pixels), np.arange(58), np.arange(58, 60)) is not None
    assert place_of(content(pixels), np.arange(58), np.arange(58, 59)) is None


def test_a_ranking_that_finds_nothing_shows_no_place(tmp_path):
    source = Source("demo?n=120", device="cpu", mode="features", backbone="random")
    folder = RunFolder.create(str(tmp_path / "run"), "rank")
    rank(source, RankOptions("random"), folder)
    assert load_saliency(folder.path) == {}


def test_features_have_none(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "rank")
    rank(
        Source(str(miniatures.npz(tmp_path / "two.npz")), device="cpu"),
        RankOptions("random"),
        folder,
    )
    assert not (folder.path / FILE).exists()
    assert load_saliency(folder.path) == {}


def test_any_name_of_a_class_comes_back(tmp_path):
    maps = {
        "rank": {"<b>/../ñ\u202e": (np.ones((2, 2), np.float32), np.zeros((4, 4, 3), np.uint8))}
    }
    save_saliency(tmp_path, maps)
    assert list(load_saliency(tmp_path)["rank"]) == ["<b>/../ñ\u202e"]
