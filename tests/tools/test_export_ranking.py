"""Rankings for other tools: each format holds what the ranking holds, and nothing runs in it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from sebra.cli.main import run as cli
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra_tools.export_ranking import export_ranking


@pytest.fixture
def ranking(tmp_path):
    n = 40
    table = pd.DataFrame(
        {
            "id": [f"=cmd|{i}" if i == 0 else f"train/{i}.png" for i in range(n)],
            "label": ["cat", "dog"] * (n // 2),
            "rank": np.arange(n) // 2,
            "bucket": np.arange(n) // 8,
            "spuriosity": 1 - np.arange(n) // 2 / (n // 2 - 1),
            "noise": np.where(np.arange(n) == 3, 0.9, 0.1),
            "suggested": ["cat" if i == 3 else ["cat", "dog"][i % 2] for i in range(n)],
            "why": "",
        }
    )
    folder = tmp_path / "run"
    folder.mkdir()
    Ranking(table).save(folder / "ranking.parquet")
    return folder


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_column_and_no_formula(ranking):
    assert cli(["export", str(ranking), "--format", "csv"]) == 0
    rows = rows_of(ranking / "ranking.csv")
    assert len(rows) == 40
    assert rows[0]["id"] == "'=cmd|0"
    assert {"rank", "noise", "suggested"} <= set(rows[0])


def test_label_issues_are_named_as_datalab_names_them(ranking, tmp_path):
    export_ranking(str(ranking), "cleanlab", tmp_path / "issues.csv")
    rows = rows_of(tmp_path / "issues.csv")
    issues = [r for r in rows if r["is_label_issue"] == "True"]
    assert len(issues) == 1
    assert (issues[0]["given_label"], issues[0]["predicted_label"]) == ("dog", "cat")
    assert float(issues[0]["label_score"]) == pytest.approx(0.1)


def test_arrays_are_ready_for_scikit_learn(ranking, tmp_path):
    export_ranking(str(ranking), "npz", tmp_path / "ranking.npz")
    with np.load(tmp_path / "ranking.npz", allow_pickle=False) as held:
        model = LogisticRegression().fit(held["X"], held["y"])
        assert model.n_features_in_ == len(held["columns"])
        assert held["classes"][held["y"]].tolist()[:2] == ["cat", "dog"]
        assert held["ids"][1] == "train/1.png"


def test_without_noise_there_are_no_label_issues(ranking, tmp_path):
    table = Ranking.load(ranking).table.drop(columns="noise")
    Ranking(table).save(ranking / "ranking.parquet")
    with pytest.raises(UsageError, match="noise column"):
        export_ranking(str(ranking), "cleanlab", tmp_path / "x.csv")


def test_fiftyone_finds_every_image_with_its_figures(tmp_path):
    folder = tmp_path / "run"
    command = ["rank", "demo?n=100", "--method", "random", "--mode", "features"]
    assert cli([*command, "--backbone", "random", "--device", "cpu", "--out", str(folder)]) == 0
    assert cli(["export", str(folder), "--format", "fiftyone"]) == 0
    labels = json.loads((folder / "fiftyone" / "labels.json").read_text(encoding="utf-8"))
    table = Ranking.load(folder).table
    assert "classes" not in labels  # with it, targets would be numbers
    assert len(labels["labels"]) == len(table)
    assert all(Path(f).is_absolute() and Path(f).is_file() for f in labels["labels"])
    found = {v["attributes"]["sample_id"]: v for v in labels["labels"].values()}
    for row in table.head(5).to_dict(orient="records"):
        assert found[row["id"]]["label"] == row["label"]
        assert found[row["id"]]["attributes"]["rank"] == row["rank"]


def test_images_that_are_gone_are_named(ranking, tmp_path):
    with pytest.raises(UsageError, match="--data"):
        export_ranking(str(ranking), "fiftyone", tmp_path / "fo")
    with pytest.raises(UsageError, match="no sample"):
        export_ranking(str(ranking), "fiftyone", tmp_path / "fo", "demo?n=100")
