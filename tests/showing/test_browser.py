"""The report in a real browser: every control by mouse and by keyboard.

The `watched` page fails a test that leaves a console error, a dialog or a network request.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sebra.samples.marks import apply_marks
from sebra.showing.report import write_report

from .conftest import HOSTILE, Watched, full_run, make_run

pytestmark = pytest.mark.browser
MOST = '[aria-label="Most spurious of boat"]'
LEAST = '[aria-label="Least spurious of boat"]'
CONTRAST = Path(__file__).with_name("contrast.js")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(full_run(), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(watched: Watched, report: Path) -> Any:
    return watched.open(report)


def in_order(label: str) -> list[str]:
    table = full_run().table
    return table[table["label"] == label].sort_values("rank")["id"].tolist()


def exported(page: Any, press: Callable[[], None]) -> str:
    with page.expect_download() as download:
        press()
    assert download.value.suggested_filename == "marks.csv"
    return Path(download.value.path()).read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def shown_title(page: Any) -> str:
    return page.locator("#d-title").inner_text()


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.title")


def comes_to(page: Any, title: str) -> None:
    """A dialog that closes gives the focus back in a task of its own."""
    page.wait_for_function("title => document.activeElement.title === title", arg=title)


def test_a_sample_opens_by_mouse_with_its_figures_and_its_path(page: Any) -> None:
    first = in_order("boat")[0]
    page.locator(f"{MOST} .tile").first.click()
    assert shown_title(page) == "boat, rank 0"
    facts = page.locator("#d-table").inner_text()
    for said in ("bucket", "spuriosity\t1.000", "pattern 1", "noise", "place\tplace of boat"):
        assert said in facts
    assert page.locator("#d-picture img").get_attribute("src").startswith("data:image/jpeg")
    page.locator("#d-copy").click()
    page.locator("#d-copy", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == first
    page.locator("#d-next").click()
    assert shown_title(page) == "boat, rank 1"
    page.locator("#d-previous").click()
    assert shown_title(page) == "boat, rank 0"
    page.locator("#d-close").click()
    assert not page.locator("#detail").is_visible()


def test_a_click_shows_the_picture_alone_as_large_as_the_window(page: Any) -> None:
    page.locator(f"{MOST} .tile").first.click()
    beside = page.locator("#d-picture img").bounding_box()
    page.locator("#d-picture img").click()
    alone = page.locator("#d-picture img").bounding_box()
    assert alone["height"] > beside["height"]
    assert not page.locator(".d-facts").is_visible()
    page.keyboard.press("ArrowRight")
    assert shown_title(page) == "boat, rank 1"
    page.keyboard.press("f")
    assert page.locator(".d-facts").is_visible()
    page.keyboard.press("d")
    assert page.locator(f"{MOST} .tile").nth(1).get_attribute("data-mark") == "drop"


def test_a_sample_opens_by_keyboard_and_gives_the_focus_back(page: Any) -> None:
    order = in_order("boat")
    page.locator(f"{MOST} .tile").first.focus()
    page.keyboard.press("ArrowRight")
    assert focused(page) == order[1]
    page.keyboard.press("ArrowDown")
    assert focused(page) == order[5]
    page.keyboard.press("Home")
    assert focused(page) == order[0]
    page.keyboard.press("End")
    assert focused(page) == order[11]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert focused(page) == order[6]
    page.keyboard.press("Enter")
    assert shown_title(page) == "boat, rank 6"
    page.keyboard.press("ArrowRight")
    assert shown_title(page) == "boat, rank 7"
    page.keyboard.press("Escape")
    comes_to(page, order[7])


def test_one_tab_stop_per_gallery_and_a_visible_focus(page: Any) -> None:
    page.locator(f"{MOST} .tile").first.focus()
    page.keyboard.press("Tab")
    inside = page.evaluate(f"document.activeElement.closest('{LEAST}') !== null")
    assert inside
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_marks_by_mouse_are_exported_and_read_back(page: Any, tmp_path: Path) -> None:
    order = in_order("boat")
    tiles = page.locator(f"{MOST} .tile")
    for place, mark in enumerate(("keep", "drop", "spurious", "relabel")):
        tiles.nth(place).click()
        page.locator(f"#detail button[data-mark={mark}]").click()
        assert tiles.nth(place).get_attribute("data-mark") == mark
        page.locator("#d-close").click()
    tiles.nth(3).click()
    page.locator("#d-label").select_option(label="train")
    page.locator("#d-close").click()
    tiles.nth(4).click()
    page.locator("#detail button[data-mark=drop]").click()
    page.locator('#detail button[data-mark=""]').click()
    page.locator("#d-close").click()
    assert page.locator("#tray-text").inner_text().startswith("4 marked")
    text = exported(page, page.locator("#export").click)
    assert rows_of(text) == [
        ["id", "mark", "label"],
        [order[0], "keep", ""],
        [order[1], "drop", ""],
        [order[2], "spurious", ""],
        [order[3], "relabel", "train"],
    ]
    file = tmp_path / "marks.csv"
    file.write_text(text, encoding="utf-8", newline="")
    samples = full_run().samples
    left = apply_marks(samples, str(file))
    assert set(samples.ids.tolist()) - set(left.ids.tolist()) == {order[1]}
    assert left.labels[left.ids.tolist().index(order[3])] == 2


def test_marks_by_keyboard(page: Any) -> None:
    order = in_order("boat")
    page.locator(f"{MOST} .tile").first.focus()
    for key in ("k", "d", "s"):
        page.keyboard.press(key)
        page.keyboard.press("ArrowRight")
    page.keyboard.press("d")
    page.keyboard.press("u")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("r")
    offered = page.locator("#d-label option:checked").inner_text()
    page.keyboard.press("r")
    wanted = page.locator("#d-label option:checked").inner_text()
    assert {offered, wanted} == {"plane", "train"}
    page.keyboard.press("ArrowRight")  # the next sample, not the next class
    assert shown_title(page) == "boat, rank 5"
    for key in ("d", "s"):
        page.keyboard.press(key)
        page.keyboard.press("ArrowRight")
    page.locator("#d-label").focus()
    page.keyboard.press("k")  # counts in the list of classes, too
    page.keyboard.press("Escape")
    page.locator("#export").focus()
    text = exported(page, lambda: page.keyboard.press("Enter"))
    assert rows_of(text)[1:] == [
        [order[0], "keep", ""],
        [order[1], "drop", ""],
        [order[2], "spurious", ""],
        [order[4], "relabel", wanted],
        [order[5], "drop", ""],
        [order[6], "spurious", ""],
        [order[7], "keep", ""],
    ]


def test_marks_outlive_the_visit_until_they_are_cleared(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.locator(f"{MOST} .tile").first.focus()
    page.keyboard.press("d")
    page = watched.open(report)
    assert page.locator(f"{MOST} .tile").first.get_attribute("data-mark") == "drop"
    page.once("dialog", lambda dialog: dialog.accept())
    page.locator("#clear").click()
    assert not page.locator("#tray").is_visible()
    assert page.locator(f"{MOST} .tile").first.get_attribute("data-mark") is None
    assert watched.errors == ["Forget all 1 marks?"]
    watched.errors.clear()


def test_the_slider_walks_the_whole_range(page: Any) -> None:
    order = in_order("boat")
    area = page.locator(".range").first
    area.scroll_into_view_if_needed()
    area.locator(".tile").first.wait_for()
    slider = area.locator("input")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    titles = area.locator(".tile").evaluate_all("tiles => tiles.map(t => t.title)")
    assert titles == order[-8:]
    assert area.locator(".where").inner_text() == "ranks 72–79 of 0–79"
    slider.focus()
    page.keyboard.press("Home")
    titles = area.locator(".tile").evaluate_all("tiles => tiles.map(t => t.title)")
    assert titles == order[:8]
    page.keyboard.press("ArrowRight")
    assert area.locator(".tile").first.get_attribute("title") == order[1]


def test_filters_and_search(page: Any) -> None:
    run = full_run()
    table = run.table

    def found(n: int) -> None:
        page.locator("#f-count", has_text=re.compile(rf"^{n} samples")).wait_for()

    found(240)
    page.locator("#f-class").select_option(label="plane")
    found(80)
    page.locator("#f-bias").select_option(label="breaks pattern 1")
    planes = table[table["label"] == "plane"]
    breaking = planes[planes["stage_1"] <= 0.5]
    found(len(breaking))
    titles = page.locator("#f-grid .tile").evaluate_all("tiles => tiles.map(t => t.title)")
    assert titles == breaking.sort_values("rank")["id"].tolist()
    page.locator("#filters button[type=reset]").click()
    found(240)
    page.locator("#f-low").focus()
    page.keyboard.press("End")
    found(int((table["spuriosity"] == 1).sum()))
    page.keyboard.press("Home")
    page.locator("#f-noise").focus()
    page.keyboard.press("End")
    found(0)
    page.keyboard.press("Home")
    found(240)
    page.locator("#f-search").focus()
    page.keyboard.type("00017.PNG")
    found(1)
    assert page.locator("#f-grid .tile").get_attribute("title") == "train/00017.png"
    page.locator("#f-grid .tile").focus()
    page.keyboard.press("d")
    page.locator("#filters button[type=reset]").click()
    page.locator("#f-mark").select_option("drop")
    found(1)


def test_more_are_shown_on_demand(page: Any) -> None:
    assert page.locator("#f-grid .tile").count() == 48
    page.locator("#f-more").click()
    assert page.locator("#f-grid .tile").count() == 96
    page.locator("#f-more").focus()
    page.keyboard.press("Enter")
    assert page.locator("#f-grid .tile").count() == 144


def test_one_class_can_be_chosen_and_panels_fold(page: Any) -> None:
    panels = page.locator("#classes details.class")
    page.locator("#class-choice").select_option(label="train")
    assert [panels.nth(i).is_visible() for i in range(3)] == [False, False, True]
    page.locator("#class-choice").select_option(label="all classes")
    panels.first.locator("summary").click()
    assert not page.locator(f"{MOST} .tile").first.is_visible()
    panels.first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert page.locator(f"{MOST} .tile").first.is_visible()


def test_colours_follow_the_system_until_they_are_chosen(watched: Watched, report: Path) -> None:
    def paper(page: Any) -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page = watched.open(report)
    light = paper(page)
    page.emulate_media(color_scheme="dark")
    dark = paper(page)
    assert dark != light
    page.locator("#theme").click()
    assert paper(page) == light
    page.locator("#theme").press("Enter")
    page.emulate_media(color_scheme="light")
    assert paper(page) == dark
    assert paper(watched.open(report)) == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_and_pictures_have_texts(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.locator(f"{MOST} .tile").first.focus()
    page.keyboard.press("d")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate(CONTRAST.read_text(encoding="utf-8")) == []
    unnamed = page.evaluate(
        "[...document.querySelectorAll('img, svg')].filter("
        "e => !(e.getAttribute('alt') || e.getAttribute('aria-label'))).length"
    )
    assert unnamed == 0
    labels = page.evaluate(
        "[...document.querySelectorAll('input, select')].filter("
        "e => !e.labels.length && !e.getAttribute('aria-label')).map(e => e.outerHTML)"
    )
    assert labels == []


def test_it_fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(f"{MOST} .tile").first.click()
    box = page.locator("#detail").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


def test_print_shows_every_picture_and_no_controls(page: Any) -> None:
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not page.locator("#browse").is_visible()
    assert page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
    assert page.evaluate(
        "[...document.querySelectorAll('main .tile img')].every(i => i.src.startsWith('data:'))"
    )


def test_hostile_names_are_shown_as_text(watched: Watched, tmp_path: Path) -> None:
    run = full_run(
        n=84, classes=HOSTILE, attributes=HOSTILE[:2], ids=lambda i: f"{HOSTILE[i % 7]}{i}"
    )
    run = replace(run, title=HOSTILE[1], data=HOSTILE[0], command=HOSTILE[1], notes=list(HOSTILE))
    page = watched.open(write_report(run, tmp_path / "report.html"))
    assert page.title() == HOSTILE[1]
    assert page.locator("h1").inner_text() == HOSTILE[1]
    assert page.evaluate("document.querySelectorAll('script:not([type])').length") == 1
    assert page.evaluate("document.querySelectorAll('img[onerror]').length") == 0
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # The right-to-left override stays in its own box: what follows is read left to right.
    isolated = page.evaluate(
        "[...document.querySelectorAll('bdi')].every(e => "
        "getComputedStyle(e).unicodeBidi.startsWith('isolate'))"
    )
    assert isolated
    expected = []
    for c, name in enumerate(HOSTILE):
        tile = page.locator("#classes details").nth(c).locator(".most .tile").first
        tile.scroll_into_view_if_needed()
        title = tile.get_attribute("title")
        assert title.startswith(name)
        expected.append(title)
        tile.focus()
        page.keyboard.press("d")
    page.locator("#classes .most .tile").first.click()
    page.locator("#d-label").select_option(index=4)
    page.locator("#d-close").click()
    text = exported(page, page.locator("#export").click)
    rows = rows_of(text)[1:]
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row)
    file = tmp_path / "marks.csv"
    file.write_text(text, encoding="utf-8", newline="")
    left = apply_marks(run.samples, str(file))
    gone = set(run.samples.ids.tolist()) - set(left.ids.tolist())
    assert gone == set(expected[1:])
    assert left.labels[left.ids.tolist().index(expected[0])] == 4


def test_a_hundred_thousand_samples_open_at_once(watched: Watched, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    photos = [
        Image.fromarray(rng.integers(0, 255, (12, 12, 3)).astype(np.uint8)).resize((192, 192))
        for _ in range(20)
    ]
    run = full_run(n=100_000, classes=tuple(f"class {c}" for c in range(10)), pixels=False)
    run = replace(run, thumbnail=lambda row: photos[row % 20])
    path = write_report(run, tmp_path / "report.html")
    assert path.stat().st_size < 15_000_000
    page = watched.open(path)
    paints = page.evaluate("performance.getEntriesByType('paint').map(e => e.startTime)")
    assert paints
    assert max(paints) < 2000
    # An id that is in no gallery is still found, with its class and rank.
    shown = set(page.evaluate("JSON.parse(document.getElementById('data').textContent).columns.id"))
    table = run.table
    hidden = table[~table["id"].isin(shown)].iloc[777]
    page.locator("#f-search").fill(hidden["id"])
    page.locator(f'#f-grid .tile[title="{hidden["id"]}"]').click()
    assert shown_title(page) == f"{hidden['label']}, rank {hidden['rank']}"


def test_without_attributes_or_stages_it_works_as_well(watched: Watched, tmp_path: Path) -> None:
    page = watched.open(write_report(make_run(n=40, attributes=()), tmp_path / "report.html"))
    page.locator("#classes .tile").first.click()
    assert shown_title(page) == "boat, rank 0"


def test_a_run_without_a_ranking_opens(watched: Watched, tmp_path: Path) -> None:
    run = full_run()
    page = watched.open(write_report(replace(run, table=run.table.iloc[:0]), tmp_path / "m.html"))
    assert page.locator("#groups").is_visible()
    assert page.locator("nav a", has_text="Browse").count() == 0
