"""Two models or two rankings side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from finished import ranked_run
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.samples.open import open_samples
from sebra_tools.answers import answers_of
from sebra_tools.compare import compare
from sebra_tools.leaning import leaning


def predictions(file: Path, data: str, wrong: np.ndarray) -> str:
    """Right but for these."""
    samples = open_samples(data)
    codes = np.where(wrong, 1 - samples.labels, samples.labels)
    said = np.asarray(samples.classes, dtype=object)[codes]
    pd.DataFrame({"id": samples.ids, "predicted": said}).to_csv(file, index=False)
    return str(file)


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str, str]:
    """A model that fails whoever breaks the first pattern, one that fails two others, a run."""
    run = ranked_run(tmp_path, n=15)
    data = str(tmp_path / "photos")
    number = np.arange(30)
    first = predictions(tmp_path / "first.csv", data, number % 3 == 0)
    second = predictions(tmp_path / "second.csv", data, np.isin(number, (1, 2)))
    return first, second, str(run.path)


def test_a_model_that_leans_on_a_pattern_is_told(two: tuple[str, str, str]) -> None:
    from sebra.runs.folder import RunFolder

    first, second, run = two
    folder = RunFolder.open(run)
    samples = open_samples(str(folder.path.parent / "photos"))
    found = leaning(answers_of(first, samples), folder, samples)
    assert found["split"] == "train"
    assert found["patterns"][0]["drop"] == 100.0
    assert found["patterns"][0]["leans"]
    assert found["patterns"][0]["against_it"]["samples"] == 10
    other = leaning(answers_of(second, samples), folder, samples)
    assert not other["patterns"][0]["leans"]
    assert other["patterns"][0]["drop"] == pytest.approx(-10.0)


def test_two_models_by_class_pattern_and_sample(two: tuple[str, str, str]) -> None:
    first, second, run = two
    found, _ = compare(first, second, str(Path(run).parent / "photos"), run)
    assert found["overall"]["average"] == pytest.approx([200 / 3, 280 / 3])
    assert found["classes"]["cat"] == pytest.approx([100 * 10 / 15, 100 * 13 / 15])
    sides = [m["against_it"]["accuracy"] for m in found["patterns"][0]["models"]]
    assert sides == [0.0, 100.0]
    assert found["changed"]["mended"]["samples"] == 10
    assert found["changed"]["broken"]["samples"] == 2
    broken = [s["id"] for s in found["changed"]["broken"]["shown"]]
    assert broken == ["cat/001.png", "cat/002.png"]
    assert found["changed"]["broken"]["shown"][0]["second"] == "dog"


def test_without_patterns_the_rest_is_compared(two: tuple[str, str, str]) -> None:
    first, second, run = two
    found, _ = compare(first, second, str(Path(run).parent / "photos"))
    assert found["patterns"] == []
    with pytest.raises(UsageError, match="DATA"):
        compare(first, second)


def test_two_rankings(tmp_path: Path) -> None:
    before = ranked_run(tmp_path)
    after = ranked_run(tmp_path, stages=1, seed=1)
    found, _ = compare(str(before.path), str(after.path))
    assert [(p["stage"], p["first"]) for p in found["patterns"]] == [("stage_1", "stage_1")]
    assert found["gone"] == ["stage_2"]
    a, b = (Ranking.load(f.path).table.query("label == 'cat'")["rank"] for f in (before, after))
    assert found["agreement"]["cat"] == pytest.approx(float(np.corrcoef(a, b)[0, 1]))
    assert found["suspects"] == {"first": 0, "both": 4, "second": 0}
    same, _ = compare(str(before.path), str(before.path))
    assert all(v == pytest.approx(1.0) for v in same["agreement"].values())
    assert same["moved"][0]["change"] == 0.0


def test_rankings_are_not_shown_over_other_data(tmp_path: Path) -> None:
    run = str(ranked_run(tmp_path).path)
    with pytest.raises(UsageError, match="has no sample cat/000"):
        compare(run, run, "demo?n=100")


def test_a_model_and_a_ranking_cannot_be_compared(two: tuple[str, str, str]) -> None:
    with pytest.raises(UsageError, match="a model and a ranking"):
        compare(two[0], two[2])


def test_the_command_prints_writes_json_and_a_page(
    two: tuple[str, str, str], tmp_path: Path, call_cli: Callable[..., Any]
) -> None:
    first, second, run = two
    data = Path(run).parent / "photos"
    page = tmp_path / "out" / "compare.html"
    done = call_cli("compare", first, second, data, "--ranking", run, "--out", page)
    assert done.status == 0, done.stderr
    assert "break pattern 1 (10)" in done.stdout
    assert "10 wrong before are right now, 2 right before are wrong now" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/jpeg") == 12
    assert "default-src &#39;none&#39;" in text
    assert "http://" not in text
    done = call_cli("compare", first, second, data, "--json")
    assert json.loads(done.stdout)["kind"] == "models"
