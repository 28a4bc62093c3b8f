"""The study of discoveries names what it finds, and only what is there."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from PIL import Image
from scipy.stats import spearmanr

import miniatures
from sebra.errors import UsageError
from sebra.runs.folder import RunFolder
from sebra.samples.table import ImageArray
from sebra.workflows.prepared import Source
from sebra_bench.bench import study
from sebra_bench.plan import BenchOptions
from sebra_bench.studies.appearance import FIGURES, Link, interval, links, looks_of
from sebra_bench.studies.discovery import clearest

N, SIDE = 400, 40


def pictures(seed: int = 0) -> tuple[ImageArray, np.ndarray, np.ndarray]:
    """Noise with a red centre in nearly all of class 0 and few of class 1, and the centre's red."""
    rng = np.random.default_rng(seed)
    labels = np.arange(N) % 2
    red = np.where(labels == 0, 0.7, 0.3) + 0.25 * rng.standard_normal(N)
    pixels = rng.integers(60, 120, (N, SIDE, SIDE, 3)).astype(np.float64)
    pixels[:, 14:26, 14:26, 0] += 100 * red[:, None, None]
    content = ImageArray(np.clip(pixels, 0, 255).astype(np.uint8), np.arange(N))
    return content, labels, red


@pytest.fixture(scope="module")
def found():
    """Links with an order that puts red pictures of class 0 and pale ones of class 1 first."""
    content, labels, red = pictures()
    noise = 0.5 * np.random.default_rng(1).standard_normal(N)
    order = np.where(labels == 0, red, -red) + noise
    return content, labels, order, links(looks_of(content, np.arange(N)), labels, order)


def of(found, label, figure):
    return next(k for k in found if k.label == label and k.figure == figure)


def test_the_planted_colour_is_the_clearest_shortcut_in_both_classes(found):
    *_, made = found
    assert clearest({"an order": made}) in {
        ("an order", "centre redness"),
        ("an order", "centre colourfulness"),
    }
    first, second = of(made, 0, "centre redness"), of(made, 1, "centre redness")
    assert first.shortcut
    assert second.shortcut
    assert first.rho > 0 > second.rho
    assert first.typical > 0 > second.typical
    assert first.low < first.rho < first.high
    assert abs(first.beyond - first.rho) < 0.1  # the border has no part in it


def test_the_middle_goes_first_where_it_is_asked_for():
    def link(figure: str, label: int, rho: float, beyond: float | None) -> Link:
        sign = 1 if label == 0 else -1
        return Link(label, figure, 9, sign * rho, -1, 1, 0.001, sign * 1.0, beyond)

    border = [link("border redness", c, 0.6, None) for c in (0, 1)]
    strong = [link("centre redness", c, 0.5, 0.1) for c in (0, 1)]
    weak = [link("centre detail", c, 0.3, 0.3) for c in (0, 1)]
    made = {"an order": [*border, *strong, *weak]}
    assert clearest(made) == ("an order", "border redness")
    assert clearest(made, in_the_middle=True) == ("an order", "centre detail")
    assert clearest({"an order": border}, in_the_middle=True) == ("an order", "border redness")


def test_a_link_is_spearmans_within_the_class(found):
    content, labels, order, made = found
    looks = looks_of(content, np.arange(N))
    k = FIGURES.index("centre redness")
    expected = spearmanr(order[labels == 1], looks[labels == 1, k]).statistic
    assert of(made, 1, "centre redness").rho == pytest.approx(expected)


def test_an_order_by_chance_has_no_shortcut(found):
    content, labels, *_ = found
    looks = looks_of(content, np.arange(N))
    chance = links(looks, labels, np.random.default_rng(7).random(N))
    assert clearest({"chance": chance}) is None
    assert min(k.chance for k in chance) > 0.01


def test_more_of_what_is_typical_of_the_other_class_is_no_shortcut(found):
    content, labels, order, _ = found
    turned = links(looks_of(content, np.arange(N)), labels, -order)
    assert clearest({"turned": turned}) is None
    assert of(turned, 0, "centre redness").chance < 0.01


def test_what_the_border_shows_as_well_is_taken_out_of_the_centre():
    rng = np.random.default_rng(3)
    light = rng.random(N)
    pixels = np.clip(
        rng.normal(60, 8, (N, SIDE, SIDE, 3)) + 120 * light[:, None, None, None], 0, 255
    )
    looks = looks_of(ImageArray(pixels.astype(np.uint8), np.arange(N)), np.arange(N))
    order = light + 0.2 * rng.standard_normal(N)
    link = of(links(looks, np.zeros(N, dtype=int), order), 0, "centre brightness")
    assert link.rho > 0.7
    assert abs(link.beyond) < 0.2


def test_the_interval_covers_nineteen_of_twenty():
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        x = rng.standard_normal(100)
        y = 0.5 * x + np.sqrt(0.75) * rng.standard_normal(100)
        low, high = interval(float(spearmanr(x, y).statistic), 100)
        covered += low <= 6 / np.pi * np.arcsin(0.25) <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_the_study_leaves_its_table_and_the_shares_of_the_galleries(tmp_path):
    cars = miniatures.urbancars(tmp_path / "cars", aligned=20)
    source = Source(f"urbancars:{cars}", device="cpu", mode="features", backbone="random")
    folder = RunFolder.create(str(tmp_path / "run"), "bench")
    options = BenchOptions((), 1, None, ("rank.epochs=2", "rank.chance=0.5", "rank.folds=2"))
    run = study("discovery", source, options, folder)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "run" / "table.csv").read_text("utf-8"))))
    orders = {r["order"] for r in rows if r["order"]}
    assert "sebra rank" in orders
    assert {r["class"] for r in rows if r["class"]} == {"urban", "country"}
    assert all(-1 <= float(r["rho"]) <= 1 for r in rows if r["rho"])
    # Only samples aligned in both attributes are looked at.
    assert {r["n"] for r in rows if r["n"]} == {"20"}
    for share in run.metrics["discovery"]["galleries"]:
        assert 0 <= share["differ"] <= 1
    for file in run.figures:
        if file.suffix in (".png", ".jpg"):
            assert np.asarray(Image.open(file).convert("L")).min() < 200


def test_data_without_pictures_is_refused(tmp_path):
    file = miniatures.npz(tmp_path / "x.npz")
    folder = RunFolder.create(str(tmp_path / "run"), "bench")
    options = BenchOptions((), 1, None, ("rank.epochs=2",))
    with pytest.raises(UsageError, match="needs pictures"):
        study("discovery", Source(str(file), device="cpu"), options, folder)
