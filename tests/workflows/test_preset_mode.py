"""What is made for one mode, a preset or a data set, is run in it unless the user names another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sebra.debiasing.registry import method_class
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.runs.config import preset_mode, settle
from sebra.runs.folder import RunFolder
from sebra.runs.meter import Meter
from sebra.samples.open import open_samples
from sebra.workflows.debias import DebiasOptions, debias
from sebra.workflows.prepare import prepare, ranked_on, usual_mode
from sebra.workflows.prepared import Source
from sebra.workflows.rank import RankOptions, rank
from sebra_bench.bench import bench
from sebra_bench.plan import BenchOptions, parse_specs

DATA = "demo?n=200"  # on a CPU it would be features


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('mode = "finetune"\n[rank]\nepochs = 1\n[debias]\nepochs = 1\n')
    return str(path)


def test_the_preset_of_sick_is_for_features():
    assert preset_mode("best/sick") == "features"
    assert preset_mode("paper/bar") is preset_mode(None) is None


def test_without_it_the_data_decides_and_then_the_device():
    demo, cpu, gpu = open_samples(DATA), torch.device("cpu"), torch.device("cuda")
    assert usual_mode("finetune", demo, cpu) == "finetune"
    assert usual_mode(None, demo, gpu) == usual_mode(None, demo, cpu) == "features"
    photos = replace(demo, mode=None)
    assert usual_mode(None, photos, gpu) == "finetune"
    assert usual_mode(None, photos, cpu) == "features"


def test_rank_and_debias_take_it(preset):
    assert rank(Source(DATA), RankOptions(preset=preset)).prepared.mode == "scratch"
    assert (
        debias(Source(DATA), DebiasOptions(method="erm", preset=preset)).prepared.mode == "scratch"
    )
    chosen = Source(DATA, mode="features")
    assert rank(chosen, RankOptions(preset=preset)).prepared.mode == "features"


def test_a_ranker_can_have_one_of_its_own(cars, tmp_path):
    """As `best/bar` has for `peel`, whatever the models are trained in."""
    path = tmp_path / "own.toml"
    path.write_text('[network.erm]\nrank_mode = "features"\n[rank]\nepochs = 1\np_critical = 0.2\n')
    for ranker, mode in (("erm", "features"), ("sebra", "finetune")):
        assert rank(cars, RankOptions(ranker, str(path))).prepared.mode == mode


def test_patterns_are_looked_for_over_the_frozen_network_unless_another_mode_is_asked_for(cars):
    """On a GPU, too, where models are fine-tuned: `rank` + `debias --ranking` is `debias`."""
    found = prepare(replace(cars, mode="finetune"), Session(), Meter())
    assert ranked_on(found, "peel", None, found.meter).mode == "features"
    assert ranked_on(found, "sebra", None, found.meter) is found
    assert ranked_on(found, "peel", None, found.meter, "finetune") is found
    asked = RankOptions("peel", overrides=("stages=1", "steps=1"))
    assert rank(replace(cars, mode="finetune"), asked).prepared.mode == "finetune"


def test_what_a_network_begins_with_is_for_its_mode():
    kind = method_class("stages").config_class
    for mode, start in (("finetune", "probe"), ("features", "zero")):
        assert settle(kind, "debias", "stages", mode, "best/bar").config.start == start


def test_bench_takes_it(preset, tmp_path):
    options = BenchOptions(parse_specs("erm"), 1, preset)
    run = bench([Source(DATA)], options, RunFolder(tmp_path / "out"))
    remarks = [r for t in run.tables for r in t.remarks]
    assert any("finetune" in r or "scratch" in r for r in remarks), remarks


def test_it_is_passed_over_where_it_cannot_be_had(preset, tmp_path):
    """Values of the other mode are passed over then, as `settle` says."""
    file = tmp_path / "two.npz"
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 4)), np.repeat([0, 1], 20)
    np.savez(file, X=X, y=y)
    assert rank(Source(str(file)), RankOptions(preset=preset)).prepared.mode == "features"
    fixed = Source(DATA, backbone="random")
    assert rank(fixed, RankOptions(preset=preset)).prepared.mode == "features"
    frozen = tmp_path / "frozen.toml"
    frozen.write_text('mode = "features"\n[rank]\nepochs = 1\n')
    scratch = Source(DATA, backbone="small", weights="none")
    assert rank(scratch, RankOptions(preset=str(frozen))).prepared.mode == "scratch"


def test_a_mode_that_does_not_exist_is_refused(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text('mode = "frozen"\n')
    with pytest.raises(UsageError, match="frozen"):
        rank(Source(DATA), RankOptions(preset=str(path)))
