"""The network that ranks in a benchmark may be another than the one that is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest

import miniatures
from benches import folder, options, row_of
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.workflows.debias import DebiasOptions, debias
from sebra_bench import workbench
from sebra_bench.bench import bench
from sebra_bench.runs import own_ranker


def test_may_start_from_other_weights(cars, tmp_path):
    one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
    bench([cars], options("sebra", seeds=1), one)
    bench([cars], options("sebra", seeds=1, rank_weights="none"), other)
    rankings = [row_of(f.path, "sebra", kind="ranking") for f in (one, other)]
    models = [row_of(f.path, "sebra") for f in (one, other)]
    assert rankings[0]["network"]["mode"] == "finetune"
    assert rankings[1]["network"]["mode"] == "scratch"
    assert rankings[1]["identity"]["weights"] == "none"
    assert models[1]["identity"]["weights"] == models[0]["identity"]["weights"] != "none"
    tables = [
        Ranking.load(f.path / "rankings" / "urbancars.sebra-0.parquet").table for f in (one, other)
    ]
    assert tables[0]["id"].tolist() == tables[1]["id"].tolist()
    assert tables[0]["rank"].tolist() != tables[1]["rank"].tolist()
    with pytest.raises(UsageError, match="another ranker_weights"):
        bench([cars], options("sebra", seeds=1), other)


def test_may_be_frozen(cars, tmp_path):
    one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
    bench([cars], options("sebra", seeds=1, rank_mode="features"), one)
    ranking = row_of(one.path, "sebra", kind="ranking")
    model = row_of(one.path, "sebra")
    assert ranking["network"]["mode"] == model["identity"]["ranker_mode"] == "features"
    assert model["network"]["mode"] == "finetune"
    assert ranking["identity"]["weights"] == model["identity"]["weights"] != "none"
    with pytest.raises(UsageError, match="another ranker_mode"):
        bench([cars], options("sebra", seeds=1), one)
    preset = tmp_path / "mine.toml"
    preset.write_text('[network.sebra]\nrank_mode = "features"\n')
    bench([cars], options("sebra", seeds=1, preset=str(preset)), other)
    again = row_of(other.path, "sebra", kind="ranking")
    assert again["network"]["mode"] == "features"


def test_is_that_of_the_preset_where_debias_ranks_first(cars, tmp_path):
    preset = tmp_path / "mine.toml"
    for text, words in (
        ('rank_weights = "none"', "mode finetune: test_resnet (from scratch)"),
        ('rank_mode = "features"', "mode features: test_resnet (pretrained)"),
    ):
        preset.write_text(f"[network.sebra]\n{text}\n[rank]\nlr = 0.5\n[debias]\nepochs = 1\n")
        run = debias(cars, DebiasOptions("sebra", preset=str(preset)))
        assert run.prepared.mode == "finetune"
        first, second = (n for n in run.metrics["notes"] if n.startswith("mode "))
        assert "pretrained" in first
        assert second.startswith(words)


def test_cannot_be_frozen_without_weights_nor_thawed(cars, features, tmp_path):
    scratch = replace(cars, weights="none")
    with pytest.raises(UsageError, match="--rank-mode features: needs pretrained weights"):
        bench([scratch], options("sebra", rank_mode="features"), folder(tmp_path))
    with pytest.raises(UsageError, match="--rank-mode: rankings over frozen features"):
        bench([features], options("sebra", rank_mode="finetune"), folder(tmp_path))
    with pytest.raises(UsageError, match="--rank-mode: 'frozen'"):
        options("sebra", rank_mode="frozen")


def test_does_not_judge_its_own_ranking(cars, tmp_path, monkeypatch):
    """PD compares rankings, so it is measured with one network: that of the methods."""
    asked = []

    def noted(prepared, index, session):
        asked.append((prepared.mode, prepared.source.seed))
        return 50.0

    monkeypatch.setattr(workbench, "subset_accuracy", noted)
    bar = replace(cars, data=f"bar:{miniatures.bar(tmp_path / 'bar', n=8)}")
    bench([bar], options("sebra", seeds=2, rank_weights="none"), folder(tmp_path))
    assert set(asked) == {("finetune", 0), ("finetune", 1)}


def test_is_the_backbone_of_the_features_in_features_mode(features, tmp_path):
    with pytest.raises(UsageError, match="--rank-weights: rankings over frozen features"):
        bench([features], options("sebra", rank_weights="none"), folder(tmp_path))


def test_a_method_over_stages_is_given_a_ranking_that_has_them(features, tmp_path):
    chosen = options("resample[by=stages],resample", seeds=1, overrides=())
    assert [own_ranker(m) for m in chosen.methods] == ["peel", "sebra"]
    with_all = options("resample", seeds=1, overrides=("by=stages", "epochs=2"))
    run = bench([features], with_all, folder(tmp_path))
    assert row_of(tmp_path / "run", "peel", kind="ranking")
    assert run.metrics["datasets"][0]["methods"]
