"""A person's way: audit, look, decide in the browser, debias, compare, guard."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sebra.ranking.ranking import Ranking
from sebra.runs.folder import RunFolder
from sebra.samples.open import open_samples
from sebra.samples.verdicts import VERDICTS, Verdicts
from sebra_tools.review import Review

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
DATA = "demo"
LIMIT = 20  # points that a model may lose against a pattern
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def trained_elsewhere(file: Path) -> Path:
    """A classifier of another library, on raw pixels, and what it says of the test split."""
    from sklearn.linear_model import LogisticRegression

    samples = open_samples(DATA)
    content: Any = samples.content
    pixels = content.pixels[content.rows].reshape(len(samples), -1) / 255
    train, test = samples.rows("train"), samples.rows("test")
    model = LogisticRegression(max_iter=100, C=0.01).fit(pixels[train], samples.labels[train])
    said = np.asarray(samples.classes, dtype=object)[model.predict(pixels[test])]
    pd.DataFrame({"id": samples.ids[test], "predicted": said}).to_csv(file, index=False)
    return file


def looked_at(page: Any, name: str) -> None:
    """Nothing sticks out at the side; a picture for the docs where they are asked for."""
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    folder = os.environ.get("SEBRA_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder, f"{name}.jpg"), type="jpeg", quality=70)


def visited(browser: Any, address: str, size: dict[str, int]) -> tuple[Any, list[str]]:
    page = browser.new_context(viewport=size).new_page()
    page.set_default_timeout(15000)
    errors: list[str] = []
    page.on("console", lambda m: m.type in ("error", "warning") and errors.append(m.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    return page, errors


def show(group: Any) -> None:
    group.evaluate("e => e.scrollIntoView({block: 'center', behavior: 'instant'})")


def saved(page: Any) -> None:
    page.wait_for_function(
        "() => document.getElementById('tray-text').textContent.includes('saved in')"
    )


def decide(browser: Any, run: RunFolder) -> None:
    """The first pattern by mouse on a wide screen, the others by keyboard on a phone."""
    stages = Ranking.load(run.path).stages
    with Review(run) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page, errors = visited(browser, server.address, WIDE)
        page.wait_for_selector("html[data-ready]")
        assert page.locator("#summary").is_visible()
        looked_at(page, "way-1-first-screen")
        group = page.locator(f'[data-key="{stages[0]}"]')
        group.locator("[data-verdict=shortcut]").click()
        group.locator("input").fill("the background")
        group.locator("input").blur()
        saved(page)
        show(group)
        looked_at(page, "way-2-verdict")
        page.context.close()
        phone, more = visited(browser, server.address, PHONE)
        phone.wait_for_selector("html[data-ready]")
        looked_at(phone, "way-1-first-screen-phone")
        for stage in stages[1:]:
            phone.locator(f'[data-key="{stage}"] button').first.focus()
            phone.keyboard.press("Tab")
            phone.keyboard.press("Space")
        saved(phone)
        show(phone.locator(f'[data-key="{stages[0]}"]'))
        looked_at(phone, "way-2-verdict-phone")
        pressed = phone.locator(f'[data-key="{stages[0]}"] [aria-pressed=true]')
        assert pressed.inner_text() == "Shortcut"  # as it was given on the other screen
        phone.context.close()
        server.shutdown()
    assert errors == more == []


def test_the_whole_way(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call_cli: Callable[..., Any]
) -> None:
    mine, audit, fair, page = (Path(n) for n in ("mine.csv", "audit", "fair", "compare.html"))
    monkeypatch.chdir(tmp_path)
    trained_elsewhere(mine)
    done = call_cli("audit", DATA, "--predictions", mine, "--out", audit)
    assert done.status == 0, done.stderr
    model = RunFolder.open(str(audit)).read_metrics()["model"]
    assert model["patterns"][0]["leans"]
    assert model["patterns"][0]["drop"] > 50

    assert call_cli("check", audit, "--largest-drop", LIMIT).status == 1
    decide(browser, RunFolder.open(str(audit)))
    said = Verdicts.load(audit / VERDICTS)
    assert said.patterns["stage_1"] == {"verdict": "shortcut", "note": "the background"}
    assert set(said.called("meant")) == set(Ranking.load(audit).stages[1:])

    done = call_cli("debias", DATA, "--verdicts", audit / VERDICTS, "--out", fair)
    assert done.status == 0, done.stderr
    done = call_cli("compare", mine, fair, DATA, "--ranking", audit, "--out", page)
    assert done.status == 0, done.stderr
    assert "break pattern 1" in done.stdout
    for size, name in ((WIDE, "way-3-compare"), (PHONE, "way-3-compare-phone")):
        seen, errors = visited(browser, page.absolute().as_uri(), size)
        assert seen.locator("h1").inner_text() == "Before and after"
        assert seen.locator(".shot").count() > 10
        looked_at(seen, name)
        show(seen.locator(".shot").nth(8))
        looked_at(seen, f"{name}-samples")
        seen.context.close()
        assert errors == []

    before = call_cli("check", audit, "--predictions", mine, "--largest-drop", LIMIT)
    assert before.status == 1
    assert "failed" in before.stdout
    after = call_cli("check", fair, "--largest-drop", LIMIT)
    assert after.status == 0, after.stdout
