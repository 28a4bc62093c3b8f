"""What other tools read of a run, by those tools themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest

from finished import ranked_run
from sebra.cli.main import run as cli
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import RunFolder
from sebra_tools.export_card import export_card
from sebra_tools.export_ranking import export_ranking


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return ranked_run(tmp_path)


def test_label_studio_takes_interface_tasks_and_predictions(run: RunFolder, tmp_path: Path) -> None:
    sdk = pytest.importorskip("label_studio_sdk.label_interface")
    out = tmp_path / "studio"
    assert cli(["export", str(run.path), "--format", "labelstudio", "--out", str(out)]) == 0
    interface = sdk.LabelInterface((out / "config.xml").read_text(encoding="utf-8"))
    interface.validate()
    tasks = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
    table = Ranking.load(run.path).table.set_index("id")
    assert len(tasks) == len(table)
    for task in tasks:
        assert interface.validate_task({"data": task["data"]})
        said = task["predictions"][0]
        assert interface.validate_prediction(said)
        row = table.loc[task["data"]["id"]]
        assert said["result"][0]["value"]["choices"] == [row["suggested"]]
        assert said["score"] == pytest.approx(row["noise"])
        assert task["data"]["label"] == row["label"]
        assert task["data"]["stage_1"] == pytest.approx(row["stage_1"])
        file = unquote(task["data"]["image"].removeprefix("/data/local-files/?d="))
        assert Path("/", file).is_file()
    scores = [t["predictions"][0]["score"] for t in tasks]
    assert scores == sorted(scores, reverse=True)


def test_fiftyone_reads_every_sample(run: RunFolder, tmp_path: Path) -> None:
    readers = pytest.importorskip("fiftyone.utils.data", exc_type=ImportError)
    export_ranking(str(run.path), "fiftyone", tmp_path / "fo")
    table = Ranking.load(run.path).table.set_index("id")
    with readers.FiftyOneImageClassificationDatasetImporter(str(tmp_path / "fo")) as reader:
        found = list(reader)
    assert len(found) == len(table)
    for path, _, label in found:
        row = table.loc[label["sample_id"]]
        assert Path(path).is_file()
        assert label.label == row["label"]
        assert label["stage_1"] == pytest.approx(row["stage_1"])
        assert label["noise"] == pytest.approx(row["noise"])


def test_datalab_holds_the_label_issues(run: RunFolder, tmp_path: Path) -> None:
    datalab = pytest.importorskip("cleanlab.datalab.datalab")
    export_ranking(str(run.path), "cleanlab", tmp_path / "issues.csv")
    ours = pd.read_csv(tmp_path / "issues.csv")
    table = Ranking.load(run.path).table
    lab = datalab.Datalab({"label": table["label"].tolist()}, label_name="label", verbosity=0)
    lab.data_issues.issues = ours[["is_label_issue", "label_score"]]
    code = {name: number for number, name in enumerate(lab.class_names)}
    names = ("given_label", "predicted_label")
    lab.data_issues.info["label"] = {name: ours[name].map(code).to_numpy() for name in names}
    found = lab.get_issues("label")
    assert found["is_label_issue"].tolist() == (table["noise"] >= 0.5).tolist()
    assert found["label_score"].to_numpy() == pytest.approx(1 - table["noise"].to_numpy())
    assert found["given_label"].tolist() == table["label"].tolist()
    assert found["predicted_label"].tolist() == table["suggested"].tolist()


ASKED = """
import json
import numpy as np
from cleanlab.datalab.datalab import Datalab
lab = Datalab({"label": ["cat", "dog"] * 20}, label_name="label", verbosity=0)
lab.find_issues(pred_probs=np.eye(2)[[0, 1] * 20] * 0.8 + 0.1, issue_types={"label": {}})
found = lab.get_issues("label")
print("found", json.dumps([list(found.columns), str(found["is_label_issue"].dtype)]))
"""


def test_the_columns_are_those_that_datalab_finds_itself(run: RunFolder, tmp_path: Path) -> None:
    """Asked in a process of its own: Datalab forks, and threads do not survive that."""
    pytest.importorskip("cleanlab.datalab.datalab")
    export_ranking(str(run.path), "cleanlab", tmp_path / "issues.csv")
    ours = pd.read_csv(tmp_path / "issues.csv").drop(columns="id")
    done = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, timeout=120, check=True
    )
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    columns, kind = json.loads(said.removeprefix("found "))
    assert list(ours.columns) == columns
    assert str(ours["is_label_issue"].dtype) == kind


def model_run(run: RunFolder, inputs: tuple[int, ...] = (3, 32, 32)) -> RunFolder:
    """What a card is made of, without a network."""
    (run.path / "model.json").write_text(json.dumps({"networks": [{"inputs": inputs}]}))
    side: dict[str, Any] = {"with": {"n": 90, "accuracy": 97.0}, "against": {"n": 9, "accuracy": 8}}
    told = {"accuracy": 97.0, "balanced": 80.0, "worst": 64.0, "patterns": [side]}
    figures = {"plain": told, "kept": told}
    choice = {"kept": "debiased", "balance": 1.0, "patterns": 1, "figures": figures}
    evaluation = {
        "split": "test",
        "average": 84.62,
        "worst_group": 64.0,
        "worst_group_name": "a, b",
    }
    metrics = {"version": "9", "seconds": {"total": 1.0}, "evaluation": evaluation}
    metrics["choice"] = choice
    run.write_metrics(
        {**metrics, "plain": {"average": 78.7, "worst_group": 33.6, "worst_group_name": "a, b"}}
    )
    return run


def test_the_hub_reads_the_card(run: RunFolder, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    export_card(model_run(run), tmp_path / "README.md")
    card = hub.ModelCard.load(tmp_path / "README.md")
    found = {r.metric_name: r.metric_value for r in card.data.eval_results}
    assert found == {"accuracy (%)": 84.62, "worst group (%)": 64.0}
    assert {r.task_type for r in card.data.eval_results} == {"image-classification"}
    assert card.data.library_name == "sebra"
    assert "| worst group | 33.6 | 64.0 |" in card.content
    assert "break pattern 1 (9)" in card.content


def test_a_card_needs_a_model(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no model"):
        export_card(run, tmp_path / "README.md")
