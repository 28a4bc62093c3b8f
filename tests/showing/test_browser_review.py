"""Verdicts in a real browser: saved by `sebra review`, or exported from the file, the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from finished import ranked_run
from sebra.runs.folder import RunFolder
from sebra.samples.verdicts import VERDICTS, Verdicts
from sebra.workflows.report import report_run
from sebra.workflows.verdicts import judged
from sebra_tools.review import Review

from .conftest import Watched

pytestmark = pytest.mark.browser
BIAS = '[data-kind="patterns"][data-key="stage_{}"]'


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    found = ranked_run(tmp_path)
    report_run(found)
    return found


@pytest.fixture
def review(run: RunFolder) -> Iterator[Review]:
    with Review(run) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(params=[1280, 390])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of either width that may talk to its own server and to nobody else."""
    context = browser.new_context(viewport={"width": request.param, "height": 800})
    page = context.new_page()
    page.set_default_timeout(15000)
    errors: list[str] = []
    asked: list[str] = []
    page.on("console", lambda m: m.type in ("error", "warning") and errors.append(m.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    context.on("request", lambda r: asked.append(r.url))
    yield page
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    context.close()
    assert errors == []
    assert wide <= 0
    assert all(url.startswith(("http://127.0.0.1:", "data:", "blob:")) for url in asked)


def opened(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")


def tray(page: Any, text: str) -> None:
    page.wait_for_function(
        "t => document.getElementById('tray-text').textContent.includes(t)", arg=text
    )


def test_verdicts_by_mouse_are_saved_at_once(page: Any, run: RunFolder, review: Review) -> None:
    opened(page, review.address)
    page.locator(f"{BIAS.format(1)} [data-verdict=shortcut]").click()
    page.locator(f"{BIAS.format(2)} [data-verdict=meant]").click()
    page.locator("[data-kind=suspects] [data-verdict=wrong]").first.click()
    tray(page, "2 of 2 patterns judged; 1 suspects judged; saved in verdicts.json")
    found = Verdicts.load(run.path / VERDICTS)
    assert found.called("shortcut") == ["stage_1"]
    assert found.called("meant") == ["stage_2"]
    assert list(found.suspects.values()) == [{"verdict": "wrong"}]
    page.reload()
    page.wait_for_selector("html[data-ready]")
    pressed = page.locator(f"{BIAS.format(1)} [aria-pressed=true]")
    assert pressed.inner_text() == "Shortcut"


def test_verdicts_by_keyboard_with_a_note(page: Any, run: RunFolder, review: Review) -> None:
    opened(page, review.address)
    page.locator(f"{BIAS.format(1)} [data-verdict=shortcut]").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("the sea behind it")
    with page.expect_response(lambda r: r.request.method == "POST"):
        page.keyboard.press("Tab")
    tray(page, "1 of 2 patterns judged")
    page.wait_for_function(
        "() => document.getElementById('tray-text').textContent.includes('saved')"
    )
    said = {"verdict": "shortcut", "note": "the sea behind it"}
    assert Verdicts.load(run.path / VERDICTS).patterns == {"stage_1": said}
    page.locator(f"{BIAS.format(1)} [data-verdict=shortcut]").focus()
    with page.expect_response(lambda r: r.request.method == "POST"):
        page.keyboard.press("Space")  # again takes it back
    page.wait_for_function("() => document.getElementById('tray').hidden")
    assert Verdicts.load(run.path / VERDICTS).patterns == {}


def test_marks_are_saved_too(page: Any, run: RunFolder, review: Review) -> None:
    opened(page, review.address)
    page.locator("#classes .tile").first.focus()
    with page.expect_response(lambda r: r.request.method == "POST"):
        page.keyboard.press("d")
    tray(page, "1 marked: 1 drop")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    tray(page, "1 marked: 1 drop")
    assert list(Verdicts.load(run.path / VERDICTS).marks.values()) == [{"verdict": "drop"}]


def test_what_could_not_be_saved_is_told(browser: Any, review: Review) -> None:
    context = browser.new_context()
    page = context.new_page()
    opened(page, review.address)
    review.shutdown()
    review.server_close()
    page.locator(f"{BIAS.format(1)} [data-verdict=shortcut]").click()
    tray(page, "Not saved")
    context.close()


def test_the_file_alone_exports_the_same(watched: Watched, run: RunFolder, tmp_path: Path) -> None:
    page = watched.open(run.path / "report.html")
    page.locator(f"{BIAS.format(1)} [data-verdict=shortcut]").click()
    page.locator("[data-kind=suspects] [data-verdict=right]").first.click()
    page.reload()  # kept in the browser
    page.wait_for_selector("html[data-ready]")
    with page.expect_download() as download:
        page.locator("#export-verdicts").click()
    assert download.value.suggested_filename == "verdicts.json"
    file = tmp_path / "verdicts.json"
    download.value.save_as(file)
    said, ranking = judged(str(file), None)
    assert said.called("shortcut") == ["stage_1"]
    assert list(said.suspects.values()) == [{"verdict": "right"}]
    assert ranking.stages == ["stage_1", "stage_2"]
    assert set(json.loads(file.read_text())) == set(Verdicts(dict(said.of)).to_dict())
