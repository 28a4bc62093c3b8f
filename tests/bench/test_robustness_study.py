"""The study of unequal classes and wrong labels."""

from __future__ import annotations

import json

import numpy as np
import pytest

import miniatures
from sebra.cli.main import run as cli
from sebra.samples.open import open_samples
from sebra.samples.table import true_groups
from sebra_bench.studies.robustness import (
    CLEAN,
    LEAST,
    figures_of,
    held,
    thinned,
    troubles,
)


@pytest.fixture
def toy(tmp_path):
    """Two classes of 1,000 that a cue gives away in nine of ten; the class is hard to see."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2
    cue = np.where(rng.random(2000) > 0.1, y, 1 - y)
    x = rng.normal(size=(2000, 8)).astype(np.float32)
    x[:, 0] += 8 * (cue - 0.5)
    x[:, 1] += y - 0.5
    np.savez(tmp_path / "toy.npz", X=x, y=y, cue=cue)
    return str(tmp_path / "toy.npz")


def test_a_thinned_class_keeps_its_conflicting_samples(toy):
    samples = open_samples(toy)
    rows = thinned(samples, 20, seed=1)
    labels, groups = samples.labels[rows], true_groups(samples)[rows]
    assert np.bincount(labels).tolist() == [1000, 50]
    assert np.bincount(groups[labels == 1]).tolist() == [50 - LEAST, LEAST]
    np.testing.assert_array_equal(rows, thinned(samples, 20, seed=1))
    assert np.bincount(samples.labels[thinned(samples, 20, seed=2)]).tolist() == [50, 1000]


def test_groups_smaller_than_the_least_are_kept_whole(tmp_path):
    cars = miniatures.urbancars(tmp_path / "cars", aligned=60)
    samples = open_samples(f"urbancars:{cars}")
    train = samples.rows("train")
    groups = true_groups(samples)[train][samples.labels[train] == 0]
    rows = thinned(samples, 2, seed=0)
    kept = true_groups(samples)[train][rows][samples.labels[train][rows] == 0]
    sizes = np.bincount(groups)
    assert (np.bincount(kept)[1:] == np.minimum(sizes[1:], LEAST)).all()


def test_a_class_too_small_is_not_thinned(toy):
    names = [trouble.name for trouble in troubles(open_samples(toy), seed=0)]
    assert names == [CLEAN, "classes 1:20", "10% wrong labels", "20% wrong labels"]


def test_wrong_labels_are_left_out_of_the_count(toy):
    samples = open_samples(toy)
    trouble = troubles(samples, seed=0)[-1]
    wrong = trouble.labels != samples.labels[samples.rows("train")]
    np.testing.assert_array_equal(wrong, ~trouble.right)
    assert wrong.mean() == pytest.approx(0.2)


def test_a_drop_is_against_the_clean_run_of_the_same_seed_and_method():
    def row(trouble: str, method: str, seed: int, d: float) -> dict:
        same = {"same_samples": {CLEAN: d, "x": d + 0.01, "y": d}} if trouble == CLEAN else {}
        of = {"trouble": trouble, "method": method, "seed": seed, "ranking": {"somers_d": d}}
        return {**of, **same}

    rows = [row(CLEAN, "peel", 0, 0.9), row(CLEAN, "peel", 1, 0.7), row(CLEAN, "sebra", 0, 0.5)]
    rows += [row("x", "peel", 0, 0.8), row("x", "peel", 1, 0.7), row("x", "sebra", 0, 0.1)]
    found = figures_of(rows)
    assert found["x"]["peel"]["drop"] == pytest.approx(0.06)  # of the same samples, not of all
    assert found["x"]["sebra"]["drop"] == pytest.approx(0.41)
    assert found[CLEAN]["peel"]["drop"] == 0
    assert held(found)  # the gate is peel's
    rows += [row("y", "peel", 0, 0.7), row("y", "peel", 1, 0.4)]
    assert not held(figures_of(rows))


def test_the_study_compares_both_methods_and_repeats_no_run(toy, tmp_path, capsys):
    command = ["bench", "study", "robustness", toy, "--seeds", "1", "--device", "cpu", "--json"]
    command += ["--out", str(tmp_path / "run")]
    assert cli(command) == 0
    found = json.loads(capsys.readouterr().out)["robustness"]["troubles"]
    assert all(set(methods) == {"peel", "sebra"} for methods in found.values())
    assert found[CLEAN]["peel"]["somers_d"] > 0.9
    assert (tmp_path / "run" / "robustness.png").stat().st_size > 0
    for file in (tmp_path / "run").iterdir():  # what a results folder does not keep
        if file.is_file() and file.name != "rows.jsonl":
            file.unlink()
    rows = (tmp_path / "run" / "rows.jsonl").read_bytes()
    assert cli(command) == 0
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == rows


@pytest.mark.xfail(strict=True, reason="with 20 % wrong labels peel names no stage on this toy")
def test_a_fifth_of_wrong_labels_hardly_harms_peel(toy, tmp_path, capsys):
    command = ["bench", "study", "robustness", toy, "--seeds", "1", "--device", "cpu", "--json"]
    assert cli([*command, "--out", str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)["robustness"]["troubles"]
    assert found["20% wrong labels"]["peel"]["drop"] < 0.1


def test_the_study_needs_attributes(tmp_path, capsys):
    y = np.arange(60) % 2
    np.savez(tmp_path / "bare.npz", X=np.random.default_rng(0).normal(size=(60, 3)), y=y)
    command = ["bench", "study", "robustness", str(tmp_path / "bare.npz"), "--seeds", "1"]
    assert cli([*command, "--out", str(tmp_path / "run")]) == 2
    assert "no attribute columns" in capsys.readouterr().err
