"""Biases, suspects, trust, heat maps and texts of the report in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sebra.samples.table import Texts
from sebra.showing.report import ReportInput, write_report
from sebra_bench.baselines.neuron_marks import Neuron, render_page

from .conftest import HOSTILE, Watched, full_run

pytestmark = pytest.mark.browser
CONTRAST = Path(__file__).with_name("contrast.js")
SUSPECTS = 20
FOLLOWS, BREAKS = '[aria-label="Follow pattern 2, boat"]', '[aria-label="Break pattern 2, boat"]'
LONG = "a first sentence about boats " + "and so on " * 40 + "to the last word"


def suspicious(run: ReportInput, why: str = "unlike every boat") -> ReportInput:
    """The run with heat maps, trust and more suspects than are shown at once."""
    table = run.table.copy()
    n = len(table)
    table["noise"] = np.where(np.arange(n) < SUSPECTS, 0.9 - np.arange(n) / 1000, 0.1)
    table["why"] = why
    spot = Image.new("RGB", (32, 32), (200, 30, 30))
    label = run.samples.classes[0]
    return replace(
        run,
        table=table,
        heatmaps={"rank": {label: spot}, "stage_1": {label: spot}, "stage_2": {label: spot}},
        metrics={
            "ranking": {
                "somers_d": 0.81,
                "trust": 0.64,
                "controls": {"said": ["a mark would have been found in 8 of 10 trials"]},
            }
        },
        config={**run.config, "mode": "features", "weights": "my weights.safetensors"},
        folder="runs/a",
        data="pictures",
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(suspicious(full_run()), tmp_path_factory.mktemp("sections") / "r.html")


@pytest.fixture
def page(watched: Watched, report: Path) -> Any:
    return watched.open(report)


def ids(page: Any, gallery: str) -> list[str]:
    return page.locator(f"{gallery} .tile").evaluate_all("tiles => tiles.map(t => t.title)")


def open_tile(page: Any, tile: Any) -> None:
    """Clicks a picture once it is drawn: until then what lies above may still move it."""
    tile.scroll_into_view_if_needed()
    page.wait_for_function(
        "t => t.querySelector('img').naturalWidth > 0", arg=tile.element_handle()
    )
    tile.click()
    page.locator("dialog[open] #d-place").wait_for()


def test_both_sides_of_a_bias_open_by_mouse_and_by_keyboard(page: Any) -> None:
    table = full_run().table
    boats = table[table["label"] == "boat"].sort_values("stage_2")
    assert ids(page, BREAKS) == boats["id"].tolist()[:12]
    assert ids(page, FOLLOWS) == boats["id"].tolist()[::-1][:12]
    open_tile(page, page.locator(f"{BREAKS} .tile").first)
    assert "breaks it" in page.locator("#d-table tr", has_text="pattern 2").inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    second = ids(page, BREAKS)[1]
    page.wait_for_function("title => document.activeElement.title === title", arg=second)
    page.keyboard.press("s")
    assert page.locator(f"{BREAKS} .tile").nth(1).get_attribute("data-mark") == "spurious"
    page.locator(f"{FOLLOWS} .tile").first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert "follows it" in page.locator("#d-table tr", has_text="pattern 2").inner_text()


def test_a_bias_folds_by_mouse_and_by_keyboard(page: Any) -> None:
    panel = page.locator("#biases article").nth(1).locator("details.class").first
    panel.locator("summary").click()
    assert not page.locator(FOLLOWS).is_visible()
    panel.locator("summary").focus()
    page.keyboard.press("Space")
    assert page.locator(FOLLOWS).is_visible()


def test_heat_maps_are_drawn_and_described(page: Any) -> None:
    maps = page.locator(".heatmap img")
    assert maps.count() == 3
    drawn = maps.evaluate_all("all => all.map(i => [i.alt, i.naturalWidth > 0])")
    assert drawn == [
        ["Where pattern 1 sits in images of boat, averaged", True],
        ["Where pattern 2 sits in images of boat, averaged", True],
        ["Where the most spurious images of boat differ from the least spurious ones, averaged",
         True],
    ]  # fmt: skip


def test_the_range_is_large_enough_to_see_beside_a_heat_map(page: Any) -> None:
    strip = page.locator(".range").first
    strip.scroll_into_view_if_needed()
    strip.locator(".tile").first.wait_for()
    assert strip.locator(".tile").first.bounding_box()["width"] >= 48


def test_what_controls_showed_is_said_in_words(page: Any) -> None:
    summary = page.locator("#next").inner_text()
    assert "A mark would have been found in 8 of 10 trials." in summary


def test_the_next_commands_take_the_network_along(page: Any) -> None:
    page.locator("#next .copy").nth(1).click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == (
        "sebra debias pictures --mode features --weights 'my weights.safetensors' --ranking runs/a"
    )
    page.locator("#next .copy").nth(2).focus()
    page.keyboard.press("Enter")
    page.locator("#next .copy", has_text="Copied").nth(1).wait_for()
    assert page.evaluate("navigator.clipboard.readText()").endswith("--exclude marks.csv")


def test_suspects_say_why_and_offer_their_label(page: Any) -> None:
    first = page.locator(".suspects > li").first
    assert "0.90" in first.inner_text()
    assert "unlike every boat" in first.inner_text()
    suggested = full_run().table["suggested"][0]
    open_tile(page, first.locator(".tile"))
    facts = page.locator("#d-table").inner_text()
    assert f"suggested label\t{suggested}" in facts
    assert "why\tunlike every boat" in facts
    page.locator("#d-close").click()
    page.keyboard.press("r")
    assert page.locator("#d-label option:checked").inner_text() == suggested
    page.keyboard.press("Escape")
    assert page.locator("#tray-text").inner_text() == "1 marked: 1 relabel"


def test_suspects_are_walked_one_after_the_other(page: Any) -> None:
    open_tile(page, page.locator(".suspects .tile").first)
    assert page.locator("#d-place").inner_text().startswith("1 of 12")
    first = shown = page.locator("#d-id").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#d-place").inner_text().startswith("2 of 12")
    shown = page.locator("#d-id").inner_text()
    assert shown != first


def test_further_suspects_unfold_by_keyboard(page: Any) -> None:
    more = page.locator("#suspects details")
    assert page.locator(".suspects .tile:visible").count() == 12
    more.locator("summary").focus()
    page.keyboard.press("Enter")
    assert page.locator(".suspects .tile:visible").count() == SUSPECTS
    last = more.locator(".tile").last
    last.focus()
    page.keyboard.press("Enter")
    assert "0.881" in page.locator("#d-table").inner_text()


def test_every_section_is_reached_from_the_menu_by_keyboard(page: Any) -> None:
    links = page.locator("nav a")
    assert links.all_inner_texts() == [
        "Summary", "Patterns", "Classes", "Suspects", "Groups", "Browse", "Training", "Run",
    ]  # fmt: skip
    for i in range(links.count()):
        links.nth(i).focus()
        page.keyboard.press("Enter")
        target = page.evaluate("document.querySelector(location.hash).tagName")
        assert target == "SECTION"
    page.locator(".skip").focus()
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#summary"


def test_the_upper_bound_and_the_class_filter_by_keyboard(page: Any) -> None:
    table = full_run().table
    page.locator("#f-high").focus()
    page.keyboard.press("Home")
    least = int((table["spuriosity"] == 0).sum())
    page.locator("#f-count", has_text=f"{least} samples").wait_for()
    page.locator("#filters button[type=reset]").focus()
    page.keyboard.press("Enter")
    page.locator("#f-class").focus()
    page.keyboard.press("p")  # the first class that starts with it
    page.locator("#f-count", has_text="80 samples").wait_for()


def test_folded_tables_open_and_wide_ones_take_the_focus(page: Any) -> None:
    groups = page.locator("#groups details").last
    groups.locator("summary").focus()
    page.keyboard.press("Enter")
    assert groups.locator("table").is_visible()
    region = groups.locator(".scroll")
    region.focus()
    assert page.evaluate("document.activeElement.getAttribute('role')") == "region"


@pytest.fixture(scope="module")
def text_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = full_run(n=60, pixels=False)
    words = [f"{HOSTILE[i % len(HOSTILE)]} number {i}" for i in range(60)]
    words[0] = LONG
    texts = Texts(tuple(words), tuple(f"second of {i}" for i in range(60)))
    run = replace(run, samples=replace(run.samples, content=texts))
    return write_report(run, tmp_path_factory.mktemp("texts") / "texts.html")


class Test_texts:
    @pytest.fixture
    def page(self, watched: Watched, text_report: Path) -> Any:
        return watched.open(text_report)

    def test_tiles_show_the_text_and_the_detail_more_of_it(self, page: Any) -> None:
        assert page.locator(".tile img").count() == 0
        page.locator("#f-search").fill("00000.png")
        page.locator("#f-count", has_text="1 samples").wait_for()
        tile = page.locator("#f-grid .tile")
        assert tile.inner_text().startswith("a first sentence about boats")
        tile.click()
        shown = page.locator("#d-picture").inner_text()
        assert shown == f"{LONG} — second of 0"
        page.keyboard.press("Escape")
        page.keyboard.press("k")
        assert tile.get_attribute("data-mark") == "keep"

    def test_hostile_texts_stay_texts(self, page: Any) -> None:
        assert page.evaluate("document.querySelectorAll('img').length") == 0
        page.locator("#f-search").fill("00007.png")
        page.locator("#f-count", has_text="1 samples").wait_for()
        page.locator("#f-grid .tile").click()
        assert page.locator("#d-picture").inner_text().startswith(HOSTILE[0])
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_click_counts_though_its_picture_arrives_meanwhile(page: Any) -> None:
    tile = page.locator(".suspects .tile").nth(1)
    tile.scroll_into_view_if_needed()
    picture = tile.locator("img").element_handle()
    page.wait_for_function("i => i.naturalWidth > 0", arg=picture)
    source = picture.evaluate("i => { const s = i.src; i.removeAttribute('src'); return s; }")
    box = tile.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    picture.evaluate("(i, s) => { i.src = s; return i.decode(); }", source)
    page.wait_for_timeout(100)
    page.mouse.up()
    page.locator("#d-table tr").first.wait_for()


def test_hostile_names_in_every_late_section_are_texts(watched: Watched, tmp_path: Path) -> None:
    run = full_run(
        n=84, classes=HOSTILE, attributes=HOSTILE[:2], ids=lambda i: f"{HOSTILE[i % 7]}{i}"
    )
    run = suspicious(run, why=HOSTILE[1])
    run.table["suggested"] = HOSTILE[0]
    page = watched.open(write_report(run, tmp_path / "report.html"))
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.querySelectorAll('script:not([type])').length") == 1
    assert page.evaluate("document.querySelectorAll('[onerror]').length") == 0
    assert HOSTILE[1] in page.locator(".suspects .why").first.inner_text()
    assert HOSTILE[0] in page.locator(".suspects > li").nth(1).inner_text()
    assert HOSTILE[0] in page.locator("#biases .heatmap img").first.get_attribute("alt")
    assert HOSTILE[0] in page.locator("#biases .hint").first.inner_text()
    open_tile(page, page.locator(".suspects .tile").nth(1))
    page.locator("#d-table tr", has_text="suggested label").wait_for()
    facts = page.locator("#d-table").inner_text()
    assert f"why\t{HOSTILE[1]}" in facts
    assert f"suggested label\t{HOSTILE[0]}" in facts
    tip = page.locator("#d-table bdi[title^='long x']")
    assert all(len(t) <= 1000 for t in tip.evaluate_all("all => all.map(e => e.title)"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_neurons_shows_hostile_names_as_texts(
    watched: Watched, tmp_path: Path, scheme: str
) -> None:
    part = full_run(n=84, classes=HOSTILE, ids=lambda i: f"{HOSTILE[i % 7]}{i}").samples
    neurons = tuple((Neuron(c, 0.5, False, (c, c + 7)),) for c in range(len(HOSTILE)))
    path = tmp_path / "neurons.html"
    path.write_text(render_page(part, neurons), encoding="utf-8")
    page = watched.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(path.as_uri())
    assert page.locator("h2").all_inner_texts() == [" ".join(name.split()) for name in HOSTILE]
    assert page.locator("li img").evaluate_all("all => all.every(i => i.naturalWidth > 0)")
    assert page.locator("li").first.inner_text().startswith(HOSTILE[0])
    assert page.evaluate("document.querySelectorAll('[onerror], script').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(CONTRAST.read_text(encoding="utf-8")) == []
