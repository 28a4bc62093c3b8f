"""One rule for settings, for every command: what ranks first and what is given a ranking agree."""

from __future__ import annotations

import json

import numpy as np
import pytest

import miniatures
import sebra
from sebra.runs.folder import RunFolder

QUICK = ("--set", "epochs=2")


def same_model(call_cli, tmp_path, data, preset=(), method="sebra", ranker="sebra", quick=()):
    """`rank` and then `debias --ranking`, and `debias` alone: what they leave."""
    asked = ("--device", "cpu", "--seed", 3, *preset)
    own = [word for text in quick for word in ("--set", text)]
    first = [word for text in quick for word in ("--set", f"rank.{text}")]
    for command in (
        ("rank", data, *asked, "--method", ranker, *own, "--out", "ranked"),
        ("debias", data, *asked, "--method", method, *QUICK, "--ranking", "ranked", "--out", "two"),
        ("debias", data, *asked, "--method", method, *QUICK, *first, "--out", "one"),
    ):
        done = call_cli(*command)
        assert done.status == 0, done.stderr
    one, two = (RunFolder(tmp_path / name) for name in ("one", "two"))
    weights = [(run.path / "model.safetensors").read_bytes() for run in (one, two)]
    assert weights[0] == weights[1]
    return one, two


@pytest.mark.parametrize(
    ("method", "ranker"), [("sebra", "sebra"), ("stages", "peel"), ("auto", "peel")]
)
def test_rank_and_then_debias_is_debias_on_the_built_in_set(call_cli, tmp_path, method, ranker):
    one, two = same_model(call_cli, tmp_path, "demo?n=200", method=method, ranker=ranker)
    assert one.read_config()["rank"] == two.read_config()["rank"]


def test_rank_and_then_debias_is_debias_on_a_published_layout(cars, call_cli, tmp_path):
    """With a preset that ranks with a network of its own: from scratch, where the other is not."""
    data = f"bar:{miniatures.bar(tmp_path / 'bar', n=8)}"
    network = ("--backbone", cars.backbone, "--weights", cars.weights, "--image-size", 32)
    asked = ("--preset", "paper/bar", "--mode", "finetune", *network)
    one, _ = same_model(call_cli, tmp_path, data, asked, quick=("epochs=1", "p_critical=0.2"))
    said = one.read_config()
    assert said["rank"]["beta"] == 1.42
    assert said["rank_from"]["beta"] == "preset paper/bar"


def test_the_default_method_ranks_alike_on_a_published_layout(cars, call_cli, tmp_path):
    data = f"bar:{miniatures.bar(tmp_path / 'bar', n=8)}"
    network = ("--backbone", cars.backbone, "--weights", cars.weights, "--image-size", 32)
    asked = (*network, "--mode", "features")
    same_model(call_cli, tmp_path, data, asked, "auto", "peel")


def test_a_run_says_where_every_value_is_from(call_cli, tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text("[rank.sebra]\nbeta = 0.8\n[debias]\nepochs = 3\n", encoding="utf-8")
    done = call_cli(
        "debias", "demo?n=200", "--method", "sebra", "--preset", preset, "--set", "tau=0.3",
        "--set", "rank.epochs=4",
        "--out", "run",
    )  # fmt: skip
    assert done.status == 0, done.stderr
    said = RunFolder(tmp_path / "run").read_config()
    expected = {
        "settings": {"tau": (0.3, "--set"), "epochs": (3, f"preset {preset}"),
                     "lr": (1e-3, "mode"), "optimizer": ("adam", "mode")},
        "rank": {"beta": (0.8, f"preset {preset}"), "epochs": (4, "--set"), "lr": (0.15, "mode"),
                 "p_critical": (0.75, "default")},
    }  # fmt: skip
    for table, values in expected.items():
        found = {k: (said[table][k], said[f"{table}_from"][k]) for k in values}
        assert found == values
    assert said["rank"]["method"] == "sebra"
    assert set(said["settings"]) == set(said["settings_from"])


def test_no_command_takes_a_preset_that_was_not_asked_for(cars, call_cli, tmp_path):
    asked = (cars.data, "--device", "cpu", "--backbone", cars.backbone, "--weights", cars.weights)
    for command, table in (("rank", "settings"), ("debias", "settings"), ("debias", "rank")):
        more = ("--image-size", 32, "--mode", "finetune", "--set", "epochs=1")
        ranks = (
            ("--set", "rank.epochs=1", "--set", "rank.p_critical=0.2") if table == "rank" else ()
        )
        wanted = ("--method", "erm" if table == "settings" else "sebra")
        done = call_cli(command, *asked, *more, *ranks, *wanted, "--out", f"{command}-{table}")
        assert done.status == 0, done.stderr
        said = RunFolder(tmp_path / f"{command}-{table}").read_config()
        assert set(said[f"{table}_from"].values()) <= {"default", "mode", "--set"}


def test_a_setting_of_the_ranker_comes_too_late_for_a_ranking(call_cli, tmp_path):
    done = call_cli("debias", "demo?n=200", "--ranking", "x", "--set", "rank.epochs=4")
    assert done.status == 2
    assert "settings come too late" in done.stderr


def test_the_estimator_the_python_call_and_the_command_rank_alike(call_cli, tmp_path):
    arrays = miniatures.features(n=300, d=8)
    train = {"X": arrays["X"].astype(np.float32), "y": arrays["y"]}
    np.savez(tmp_path / "same.npz", **train)
    done = call_cli("rank", "same.npz", "--device", "cpu", "--seed", 5, "--out", "run", "--json")
    assert done.status == 0, done.stderr
    by_command = sebra.Ranking.load(tmp_path / "run").table
    by_call = sebra.rank(str(tmp_path / "same.npz"), device="cpu", seed=5).table
    found = sebra.SebraRanker(random_state=5).fit(train["X"], train["y"])
    for table in (by_command, by_call):
        np.testing.assert_array_equal(table["rank"].to_numpy(), found.rank_)
        np.testing.assert_array_equal(table["bucket"].to_numpy(), found.bucket_)
    assert json.loads(done.stdout)["ranking"]["buckets"] == len(np.unique(found.bucket_))
