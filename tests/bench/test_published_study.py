"""The study of the published settings: both choices of an epoch, and figures by bucket."""

from __future__ import annotations

import numpy as np
import pytest

import miniatures
from benches import folder
from sebra.ranking.ranking import Ranking
from sebra.workflows.prepared import Source
from sebra_bench import fidelity as published
from sebra_bench.bench import study
from sebra_bench.plan import BenchOptions
from sebra_bench.rows import ROWS, read_rows


@pytest.fixture
def run(tmp_path):
    data = miniatures.npz(tmp_path / "two.npz", **miniatures.features(300))
    options = BenchOptions((), 2, None, ("rank.epochs=4", "rank.enough=0"), min_group=1)
    return study("published", Source(str(data), device="cpu"), options, folder(tmp_path))


def test_rows_hold_both_choices_and_the_buckets(run, tmp_path):
    rows = [r for r in read_rows(tmp_path / "run" / ROWS) if r["kind"] == "published"]
    assert [r["seed"] for r in rows] == [0, 1]
    for row in rows:
        assert row["settings"]["epochs"] == published.EPOCHS
        assert {row[k]["selection"]["criterion"] for k in ("groups", "label-free")} == {
            "groups",
            "class",
        }
        assert row["groups"]["split"] == row["label-free"]["split"] == "test"
        saved = tmp_path / "run" / "rankings" / f"two.npz.sebra-{row['seed']}.parquet"
        bucket = Ranking.load(saved).table["bucket"].to_numpy()
        assert row["ranking"]["bucket_sizes"] == np.unique(bucket, return_counts=True)[1].tolist()
    shown = {line["figure"] for line in run.tables[0].shown}
    assert {"Somers' D by bucket", "plain Kendall tau-b of rank and group"} <= shown


def test_agreement_is_within_two_standard_errors():
    def row(seed, worst):
        figures = {"id_accuracy": 97.0, "worst_group": worst, "gaps": {"background": -20.0 - seed}}
        ranking = {"somers_d_by_bucket": 0.53, "bucket_sizes": [3, 1]}
        return {"seed": seed, "data": "urbancars", "ranking": ranking} | dict.fromkeys(
            ("groups", "label-free"), figures
        )

    table = published.figures_table("urbancars", [row(0, 49.0), row(1, 53.0)])
    said = {line["figure"]: line["within two standard errors"] for line in table.shown}
    assert said["worst group, chosen by validation groups"] == "yes"
    assert said["background gap, chosen by validation groups"] == "no"
    assert said["worst group, chosen by class"] == "–"
    assert published.buckets_table([row(0, 50.0)]).shown[0]["run"] == "published code"
