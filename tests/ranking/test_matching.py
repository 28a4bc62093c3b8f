"""Patterns of two rankings, told apart by who follows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from sebra.errors import UsageError
from sebra.ranking.patterns import matched
from sebra.ranking.ranking import PATTERNS, Ranking


def ranking_of(flags: dict[str, np.ndarray], ids: list[str] | None = None) -> Ranking:
    n = len(next(iter(flags.values())))
    return Ranking(
        pd.DataFrame(
            {
                "id": ids or [f"s{i}" for i in range(n)],
                "label": ["a"] * n,
                "rank": np.arange(n),
                "bucket": 0,
                "spuriosity": np.linspace(1, 0, n),
                **{k: np.where(v, 0.9, 0.1) for k, v in flags.items()},
            }
        )
    )


def flags(seed: int, n: int = 400) -> np.ndarray:
    return np.random.default_rng(seed).random(n) < 0.9


def test_a_pattern_is_found_again_under_another_number() -> None:
    sea, light, noise = flags(0), flags(1), flags(2)
    before = ranking_of({"stage_1": sea, "stage_2": light})
    nearly = sea.copy()
    nearly[:5] = ~nearly[:5]
    now = ranking_of({"stage_1": light, "stage_2": noise, "stage_3": nearly})
    assert matched(now, before) == {"stage_1": "stage_2", "stage_3": "stage_1"}


def test_only_samples_that_both_know_count_and_none_is_no_match() -> None:
    sea = flags(0)
    before = ranking_of({"stage_1": sea}, [f"old{i}" for i in range(len(sea))])
    assert matched(ranking_of({"stage_1": sea}), before) == {}
    half = ranking_of({"stage_1": sea[:200]})
    assert matched(ranking_of({"stage_1": sea}), half) == {"stage_1": "stage_1"}


def test_everyone_follows_it_matches_nothing() -> None:
    everyone = np.ones(100, dtype=bool)
    assert matched(ranking_of({"stage_1": everyone}), ranking_of({"stage_1": everyone})) == {}


def test_the_ranking_by_one_pattern_alone_puts_those_who_break_it_last() -> None:
    sea, light = flags(0), flags(1)
    ranking = ranking_of({"stage_1": sea, "stage_2": light})
    alone = ranking.only(["stage_2"])
    assert alone.stages == ["stage_2"]
    order = alone.table.sort_values("rank")
    follows = (order["stage_2"] > 0.5).tolist()
    assert follows == sorted(follows, reverse=True)
    assert sorted(alone.table["rank"]) == list(range(400))
    assert order["spuriosity"].is_monotonic_decreasing
    before = ranking.table.set_index("id")["rank"]
    same = order[order["stage_2"] > 0.5]["id"].map(before)
    assert same.is_monotonic_increasing  # among equals the order stays
    assert ranking.only([]).stages == []
    with pytest.raises(UsageError, match="stage_9"):
        ranking.only(["stage_9"])


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_ranking_of_another_version_is_still_a_ranking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    ranking_of({"stage_1": flags(0)}).save(tmp_path / "ranking.parquet")
    if content is None:
        save_file({"heads": torch.zeros(1, 3, 2)}, str(tmp_path / PATTERNS))
    else:
        (tmp_path / PATTERNS).write_bytes(content)
    found = Ranking.load(tmp_path)
    assert found.stages == ["stage_1"]
    assert found.patterns is None
    assert "rank again" in caplog.text
