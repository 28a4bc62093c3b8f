"""The table of a ranking: ranks without ties, its file, and refusal of other data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sebra.errors import UsageError
from sebra.ranking.order import ranks_within_classes, spuriosity_of
from sebra.ranking.ranking import Ranking, RankResult
from sebra.ranking.registry import ranker_class


def ranking(n: int = 8) -> Ranking:
    result = RankResult(
        bucket=np.arange(n) // 3,
        score=np.linspace(1, 0, n),
        stages={"stage_1": np.linspace(0, 1, n)},
        details={"rounds": 3},
    )
    ids = np.array([f"s{i}" for i in range(n)], dtype=object)
    return Ranking.from_result(result, ids, np.arange(n) % 2, ("cat", "dog"))


rows = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 2)),
    min_size=1,
    max_size=40,
)


@given(rows)
def test_ranks_count_up_without_ties_by_bucket_then_falling_score(rows):
    bucket, score, labels = (np.array(column) for column in zip(*rows, strict=True))
    rank = ranks_within_classes(bucket, score, labels)
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        assert sorted(rank[members]) == list(range(len(members)))
        order = members[np.argsort(rank[members])]
        keys = [(bucket[i], -score[i]) for i in order]
        assert keys == sorted(keys)


def test_equal_scores_do_not_follow_the_order_of_the_files():
    n = 400
    rank = ranks_within_classes(np.zeros(n, int), np.zeros(n), np.zeros(n, int))
    assert abs(np.corrcoef(rank, np.arange(n))[0, 1]) < 0.15
    again = ranks_within_classes(np.zeros(n, int), np.zeros(n), np.zeros(n, int))
    np.testing.assert_array_equal(rank, again)


def test_spuriosity_falls_evenly_from_one_to_zero_in_each_class():
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    rank = np.array([0, 1, 2, 3, 4, 1, 0, 0])
    np.testing.assert_allclose(spuriosity_of(rank, labels), [1, 0.75, 0.5, 0.25, 0, 0, 1, 1])


def test_spuriosity_of_named_shortcuts_is_the_share_that_a_sample_carries():
    """Four levels of two shortcuts, each a quarter of the scale; a class need not have them all."""
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    rank = np.array([0, 1, 2, 3, 4, 5, 0, 1])
    level = np.array([3, 3, 2, 1, 0, 0, 2, 2])
    found = spuriosity_of(rank, labels, level, 4)
    np.testing.assert_allclose(found, [1, 0.875, 0.75, 0.5, 0.25, 0, 0.75, 0.625])


def test_spuriosity_falls_strictly_with_rank_whatever_the_levels():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    level = rng.integers(0, 8, 300)
    rank = ranks_within_classes(-level, rng.random(300), labels)
    found = spuriosity_of(rank, labels, level, 8)
    for c in range(3):
        assert (np.diff(found[labels == c][np.argsort(rank[labels == c])]) < 0).all()
    assert (np.floor(np.nextafter(found, 0) * 8).clip(0) == level).all()


def test_trust_is_what_the_run_says_and_none_of_a_table_alone():
    table = ranking().table
    assert Ranking(table, {"trust": 0.7}).trust == 0.7
    assert Ranking(table).trust is None


def test_the_table_has_the_promised_columns():
    table = ranking().table
    assert list(table) == ["id", "label", "rank", "bucket", "spuriosity", "stage_1"]
    assert set(table["label"]) == {"cat", "dog"}
    assert ranking().stages == ["stage_1"]
    assert ranking().buckets == 3
    assert ranking().details == {"rounds": 3}


def test_save_and_load_by_file_and_by_folder(tmp_path):
    made = ranking()
    made.save(tmp_path / "ranking.parquet")
    for where in (tmp_path, tmp_path / "ranking.parquet", str(tmp_path)):
        found = Ranking.load(where)
        pd.testing.assert_frame_equal(found.table, made.table, check_dtype=False)
    assert Ranking.load(tmp_path).folder == tmp_path
    assert [p.name for p in tmp_path.iterdir()] == ["ranking.parquet"]


def test_what_is_no_ranking_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match=r"no ranking\.parquet"):
        Ranking.load(tmp_path)
    text = tmp_path / "words.parquet"
    text.write_text("not parquet", encoding="utf-8")
    with pytest.raises(UsageError, match=r"words\.parquet: not a Parquet file") as refused:
        Ranking.load(text)
    assert "\n" not in str(refused.value)
    other = tmp_path / "other.parquet"
    pd.DataFrame({"id": ["a"], "label": ["b"]}).to_parquet(other)
    with pytest.raises(UsageError, match="columns missing: rank, bucket, spuriosity"):
        Ranking.load(other)


def test_aligned_to_reorders_and_takes_a_part():
    made = ranking()
    ids = np.array(["s5", "s0", "s3"], dtype=object)
    found = made.aligned_to(ids)
    assert found["id"].tolist() == ids.tolist()
    expected = made.table.set_index("id")["rank"]
    assert found["rank"].tolist() == [expected[i] for i in ids]


def test_aligned_to_refuses_other_data_and_double_ids():
    made = ranking()
    with pytest.raises(UsageError, match=r"2 of 3 training samples .*first: x"):
        made.aligned_to(np.array(["s1", "x", "y"], dtype=object))
    made.table.loc[0, "id"] = "s1"
    with pytest.raises(UsageError, match="not unique"):
        made.aligned_to(np.array(["s1"], dtype=object))


def test_the_notebook_view_escapes_names():
    made = ranking()
    made.table.loc[0, "id"] = "<script>"
    assert "<script>" not in made._repr_html_()
    assert "&lt;script&gt;" in made._repr_html_()


def test_an_unknown_ranker_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="sebra, peel, erm, neurons, random"):
        ranker_class("nonsense")
