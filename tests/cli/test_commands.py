"""Every command from end to end: what it prints, and what it leaves in the run folder."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import miniatures
from sebra.debiasing.registry import METHODS
from sebra.ranking.registry import RANKERS

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

QUICK = ("--device", "cpu", "--set", "epochs=2")
SHARED = {"metrics.json", "config.toml", "quarantine.csv", "checksums.json"}
RANKING = {"ranking.parquet", "history.parquet"} | SHARED
MODEL = {"model.safetensors", "model.json"} | SHARED


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return miniatures.npz(tmp_path / "two.npz", **miniatures.features(n=120))


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Ten pictures of a class, one of which is none."""
    root = miniatures.folder(tmp_path / "pets", n=10)
    (root / "cat" / "004.png").write_bytes(b"no picture")
    return root


@pytest.fixture
def printed(call_cli):
    """Runs a command with --json and returns its one object."""

    def run(*arguments: object) -> dict:
        done = call_cli(*arguments, "--json")
        assert done.status == 0, done.stderr
        assert len(done.stdout.splitlines()) == 1
        return json.loads(done.stdout)

    return run


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def kept(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def quarantine(folder: Path) -> list[dict[str, str]]:
    with open(folder / "quarantine.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def check_ranking(table: pd.DataFrame) -> None:
    """Ranks of a class are 0, 1, 2, … and spuriosity falls with them."""
    assert list(table.columns[:5]) == ["id", "label", "rank", "bucket", "spuriosity"]
    assert table["id"].is_unique
    for _, members in table.groupby("label"):
        ordered = members.sort_values("rank")
        assert ordered["rank"].tolist() == list(range(len(members)))
        assert (np.diff(ordered["spuriosity"]) <= 0).all()
        assert (np.diff(ordered["bucket"]) >= 0).all()
    assert table["spuriosity"].between(0, 1).all()


def test_rank_writes_the_run_folder_and_prints_what_it_keeps(printed, data, tmp_path):
    found = printed("rank", data, *QUICK, "--out", "run")
    run = tmp_path / "run"
    assert names(run) == RANKING
    assert found == kept(run)
    assert found["run"] == "run"
    table = pd.read_parquet(run / "ranking.parquet")
    check_ranking(table)
    assert set(table["id"]) == {str(i) for i in range(80)}
    assert found["samples"] == 80
    assert set(found["ranking"]) >= {"somers_d", "tau_b", "published", "buckets"}
    history = pd.read_parquet(run / "history.parquet")
    assert {"epoch", "label", "learned", "loss"} <= set(history.columns)
    assert set(history["label"]) == {"0", "1"}


@pytest.mark.parametrize("method", ["sebra", "erm", "random"])
def test_config_repeats_the_run(call_cli, data, tmp_path, method):
    quick = () if method == "random" else ("--set", "epochs=2")
    first = ("rank", data, "--device", "cpu", *quick, "--method", method, "--seed", 3)
    assert call_cli(*first, "--out", "first").status == 0
    config = tomllib.loads((tmp_path / "first" / "config.toml").read_text(encoding="utf-8"))
    assert {"version", "command", "data", "seed"} <= set(config)
    again = [config["command"], config["data"], "--out", "again"]
    for option in ("seed", "device", "mode", "method"):
        again += [f"--{option}", config[option]]
    for key, value in config["settings"].items():
        again += ["--set", f"{key}={value}"]
    done = call_cli(*again)
    assert done.status == 0, done.stderr
    paths = [tmp_path / run / "ranking.parquet" for run in ("first", "again")]
    pd.testing.assert_frame_equal(*map(pd.read_parquet, paths))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_another_seed_gives_another_random_ranking(call_cli, data, tmp_path):
    for seed in (0, 1):
        asked = ("rank", data, "--method", "random", "--seed", seed, "--out", f"run{seed}")
        assert call_cli(*asked).status == 0
    a, b = (pd.read_parquet(tmp_path / f"run{seed}" / "ranking.parquet") for seed in (0, 1))
    assert (a["rank"] != b["rank"]).any()


def test_a_broken_image_goes_to_quarantine_and_the_run_goes_on(call_cli, pets, tmp_path):
    done = call_cli("rank", pets, *QUICK, "--out", "run")
    assert done.status == 0, done.stderr
    [fault] = quarantine(tmp_path / "run")
    assert fault["id"] == "cat/004.png"
    assert fault["reason"]
    table = pd.read_parquet(tmp_path / "run" / "ranking.parquet")
    assert "cat/004.png" not in set(table["id"])
    assert len(table) == 19
    assert set(table["label"]) == {"cat", "dog"}
    assert "1 unreadable images of train left out" in done.stderr


def test_audit_ranks_and_reports(printed, pets, tmp_path):
    found = printed("audit", pets, "--method", "sebra", *QUICK, "--out", "run")
    assert names(tmp_path / "run") - {"saliency.npz"} == {*RANKING, "report.html"}
    assert found == kept(tmp_path / "run")
    assert Path(found["report"]) == Path("run") / "report.html"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "cat/004.png" in page


def test_report_of_a_run_elsewhere_and_of_moved_data(printed, pets, tmp_path):
    printed("rank", pets, *QUICK, "--out", "run")
    moved = pets.rename(tmp_path / "animals")
    found = printed("report", "run", "--out", "pages/mine.html", "--data", moved)
    assert found["report"] == "pages/mine.html"
    page = (tmp_path / "pages" / "mine.html").read_text(encoding="utf-8")
    assert "data:image/" in page
    assert names(tmp_path / "run") - {"saliency.npz"} == set(RANKING)


def test_debias_from_an_earlier_ranking_then_evaluate_and_predict(
    call_cli, printed, data, tmp_path
):
    printed("rank", data, *QUICK, "--out", "ranked")
    asked = ("--ranking", "ranked", "--min-group", 1, "--out", "model")
    found = printed("debias", data, *QUICK, *asked)
    run = tmp_path / "model"
    assert names(run) == {*MODEL, "ranking.parquet", "history.parquet"}
    assert found == kept(run)
    tables = [pd.read_parquet(tmp_path / r / "ranking.parquet") for r in ("ranked", "model")]
    pd.testing.assert_frame_equal(*tables)

    evaluated = printed("evaluate", "model", data, "--min-group", 1, "--device", "cpu")
    assert evaluated["evaluation"] == found["evaluation"]

    done = call_cli("predict", "model", data, "--device", "cpu")
    assert done.status == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert len(rows) == 120
    arrays = miniatures.features(n=120)
    test = [r for r, split in zip(rows, arrays["split"], strict=True) if split == 2]
    truth = arrays["y"][arrays["split"] == 2]
    right = np.mean([int(r["predicted"]) == y for r, y in zip(test, truth, strict=True)])
    assert 100 * right == pytest.approx(found["evaluation"]["average"])


def test_predict_writes_a_file_and_leaves_a_broken_image_empty(printed, pets, tmp_path):
    printed("debias", pets, *QUICK, "--method", "erm", "--out", "model")
    assert names(tmp_path / "model") == {*MODEL, "history.parquet"}
    assert quarantine(tmp_path / "model")[0]["id"] == "cat/004.png"
    found = printed("predict", "model", pets, "--device", "cpu", "--out", "answers.csv")
    assert [f["id"] for f in found["unreadable"]] == ["cat/004.png"]
    assert sum(found["predicted"].values()) == 19
    rows = pd.read_csv(tmp_path / "answers.csv").set_index("id")
    assert len(rows) == 20
    assert pd.isna(rows.loc["cat/004.png", "predicted"])
    readable = rows.drop("cat/004.png")
    np.testing.assert_allclose(readable["p_cat"] + readable["p_dog"], 1, atol=1e-5)


def test_evaluate_of_a_ranking_repeats_its_figures_and_adds_pd(printed, data, tmp_path):
    ranked = printed("rank", data, *QUICK, "--out", "run")
    found = printed("evaluate", "run", data, "--device", "cpu", "--out", "figures.json")
    for figure in ("somers_d", "tau_b", "published", "buckets"):
        assert found["ranking"][figure] == ranked["ranking"][figure]
    assert -100 <= found["ranking"]["pd"] <= 100
    assert json.loads((tmp_path / "figures.json").read_text(encoding="utf-8")) == found


def test_data_lists_layouts_and_checks(call_cli, printed, pets):
    assert {"urbancars", "bar", "celeba", "cmnist"} <= set(printed("data")["layouts"])
    assert "urbancars" in call_cli("data").stdout
    found = printed("data", "check", pets)
    assert [c["name"] for c in found["classes"]] == ["cat", "dog"]
    assert found["splits"] == {"train": 19, "val": 0, "test": 0}
    assert [f["id"] for f in found["faults"]] == ["cat/004.png"]
    assert printed("data", "check", pets, "--quick")["faults"] == []


def test_a_process_prints_json_alone_on_stdout_and_messages_on_stderr(cli, pets, tmp_path):
    done = cli("rank", pets, *QUICK, "--out", "run", "--json")
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout) == kept(tmp_path / "run")
    assert all(line.startswith("sebra: ") for line in done.stderr.splitlines())
    assert "mode features: random (fixed)" in done.stderr


@pytest.mark.parametrize(
    "command",
    ["rank", "audit", "debias", "evaluate", "predict", "report", "demo", "data", "export"],
)
def test_help_shows_an_example(call_cli, command):
    done = call_cli(command, "--help")
    assert done.status == 0
    assert f"Example: sebra {command}" in done.stdout


@pytest.mark.parametrize(
    ("command", "names"), [("rank", RANKERS), ("audit", RANKERS), ("debias", METHODS)]
)
def test_help_names_every_method(call_cli, command, names):
    shown = " ".join(call_cli(command, "--help").stdout.split())
    *others, last = names
    assert f"{', '.join(others)} or {last}." in shown


@pytest.mark.parametrize("when", ["typer.main.get_command", "sebra.cli.main.is_main"])
def test_a_signal_before_the_command_begins_has_its_line_and_status(call_cli, monkeypatch, when):
    def signalled(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(when, signalled)
    done = call_cli("data")
    assert done.status == 143
    assert "interrupted" in done.stderr


def test_a_signal_after_the_command_ended_changes_nothing(call_cli):
    assert call_cli("data").status == 0
    os.kill(os.getpid(), signal.SIGTERM)
