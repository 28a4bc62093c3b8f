"""One protocol for all methods: nothing but labels reaches training and choice; test once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import miniatures
from benches import folder
from sebra.debiasing.registry import METHODS, method_class
from sebra.errors import UsageError
from sebra.ranking.peel import PeelConfig
from sebra.ranking.sebra import SebraConfig
from sebra.workflows.prepared import Source
from sebra_bench import protocol
from sebra_bench.bench import bench
from sebra_bench.plan import BenchOptions, parse_specs
from sebra_bench.protocol import TOLD, grids, settings_for
from sebra_bench.protocol_tables import protocol_text
from sebra_bench.rows import ROWS, read_rows
from sebra_bench.workbench import Workbench

SETTINGS = 2
FREE = [
    *(n for n in METHODS if not method_class(n)(method_class(n).config_class()).needs & TOLD),
    "dfr[on=patterns]",
    "groupdro[over=buckets]",
]
TUNED = ["auto", "sebra", "afr"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(protocol, "grids", lambda file: few(1))
    for kind, short in ((PeelConfig, {"folds": 2, "steps": 5}), (SebraConfig, {"epochs": 3})):
        modes = {**kind.MODES, "finetune": {**kind.MODES.get("finetune", {}), **short}}
        monkeypatch.setattr(kind, "MODES", modes)


def few(epochs):
    """The first of the declared settings, with as many epochs."""
    return {
        k: {"shared": [f"epochs={epochs}"], "settings": v["settings"][:SETTINGS]}
        if "shared" in v
        else v
        for k, v in grids(protocol.GRIDS).items()
    }


@pytest.fixture
def trained(monkeypatch):
    """The weights of every model that is trained, with whether it looked at the test split."""
    seen = []
    train = Workbench.trained

    def watched(self, spec, seed, ranker, select="auto", test=True):
        found = train(self, spec, seed, ranker, select, test)
        state = found.run.model.network.state_dict()
        weights = {k: v.detach().clone() for k, v in state.items()}
        seen.append((spec.label, seed, test, found.run.metrics["evaluation"], weights))
        return found

    monkeypatch.setattr(Workbench, "trained", watched)
    return seen


def options(methods, kind="label-free", seeds=1):
    return BenchOptions(parse_specs(",".join(methods)), seeds, min_group=1, protocol=kind)


def shuffled_attributes(monkeypatch):
    """Every attribute of every split is permuted after the data were read."""
    made = Workbench.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        rng = np.random.default_rng(3)
        samples = self.prepared.samples
        changed = {
            name: dataclasses.replace(a, codes=rng.permutation(a.codes))
            for name, a in samples.attributes.items()
        }
        assert changed
        self.prepared.samples = dataclasses.replace(samples, attributes=changed)

    monkeypatch.setattr(Workbench, "__init__", init)


# The table without groups on its own says the same: test_one_training_serves_both_tables.
@pytest.mark.parametrize("form", ["features", "images"])
def test_no_attribute_reaches_training_selection_or_tuning(
    form, tmp_path, trained, monkeypatch, request
):
    if form == "features":
        data = miniatures.npz(tmp_path / "two.npz", **miniatures.features(150))
        source, methods = Source(str(data), device="cpu"), FREE
    else:
        source, methods = request.getfixturevalue("cars"), TUNED
    bench([source], options(methods, "both"), folder(tmp_path, "true"))
    ours, trained[:] = list(trained), []
    shuffled_attributes(monkeypatch)
    bench([source], options(methods, "both"), folder(tmp_path, "shuffled"))
    assert len(ours) == len(trained) == SETTINGS * len(methods)
    for (label, *_, one), (again, *_, other) in zip(ours, trained, strict=True):
        assert label == again
        assert all(torch.equal(v, other[k]) for k, v in one.items()), label
    true, shuffled = (read_rows(tmp_path / n / ROWS) for n in ("true", "shuffled"))
    models = [[r for r in rows if r.get("protocol") == "label-free"] for rows in (true, shuffled)]
    assert {r["method"] for r in models[0]} == set(methods)
    for row, other in zip(*models, strict=True):
        assert row["selection"] == other["selection"]
        assert row.get("tuning") == other.get("tuning")
    worst = [[r["evaluation"]["groups"] for r in rows if r["kind"] == "model"] for rows in models]
    assert worst[0] != worst[1]  # the figures do know the attributes


def test_every_method_gets_the_same_number_of_settings_and_the_test_split_is_seen_once(
    features, tmp_path, trained
):
    run = bench([features], options(["erm", "lff"], seeds=2), folder(tmp_path))
    rows = read_rows(tmp_path / "run" / ROWS)
    for method in ("erm", "lff"):
        own = [r for r in rows if r["method"] == method]
        trials = [r for r in own if r["kind"] == "trial"]
        models = [r for r in own if r["kind"] == "model"]
        assert len(trials) == SETTINGS
        assert [r["seed"] for r in models] == [0, 1]
        assert all("evaluation" not in r for r in trials)
        scores = [t["selection"]["score"] for t in trials]
        best = settings_for(parse_specs(method)[0], "features")[scores.index(max(scores))]
        for row in models:
            assert row["protocol"] == "label-free"
            listed = protocol.declared("features")
            tuning = {"chosen": list(best.overrides), "declared": listed, "scores": scores}
            assert row["tuning"] == tuning
            assert row["evaluation"]["split"] == "test"
            assert {"backbone", "weights", "content"} <= row["identity"].keys()
    assert all(not looked and not figures for _, _, looked, figures, _ in trained)
    before = len(trained)
    again = bench([features], options(["erm", "lff"], seeds=2), folder(tmp_path))
    assert len(trained) == before
    assert again.metrics["datasets"] == run.metrics["datasets"]


def test_a_choice_that_was_cut_short_goes_on(features, tmp_path, trained, monkeypatch):
    keep = protocol.Protocol._judged
    monkeypatch.setattr(protocol.Protocol, "_judged", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench([features], options(["lff"]), folder(tmp_path))
    monkeypatch.setattr(protocol.Protocol, "_judged", keep)
    bench([features], options(["lff"]), folder(tmp_path))
    assert [r["kind"] for r in read_rows(tmp_path / "run" / ROWS)] == ["trial", "trial", "model"]
    assert len(trained) == 3  # the chosen one once more


def test_who_is_told_the_groups_stands_in_the_other_table(tmp_path):
    data = miniatures.npz(tmp_path / "two.npz", **miniatures.features(300))
    features = Source(str(data), device="cpu")
    free = bench([features], options(["erm", "dfr", "groupdro"]), folder(tmp_path, "free"))
    assert any("stands in the other table" in r for r in free.tables[0].remarks)
    told = bench([features], options(["erm", "dfr"], "groups"), folder(tmp_path, "told"))
    assert [row["runs"] for row in told.tables[0].shown] == ["1", "1"]
    rows = [r for r in read_rows(tmp_path / "told" / ROWS) if r["kind"] == "model"]
    assert {r["selection"]["criterion"] for r in rows} == {"groups"}


def figures(rows, kind):
    """What judged rows of a table say, without how long they took and where."""
    return {
        (r["method"], r["seed"]): [r[k] for k in ("evaluation", "selection", "tuning", "identity")]
        for r in rows
        if r["kind"] == "model" and r["protocol"] == kind
    }


def test_one_training_serves_both_tables(features, tmp_path, trained, monkeypatch):
    monkeypatch.setattr(protocol, "grids", lambda file: few(6))
    methods = ["erm", "jtt", "sebra", "afr", "auto", "groupdro"]
    counts = {}
    for kind in ("label-free", "groups", "both"):
        bench([features], options(methods, kind, seeds=2), folder(tmp_path, kind))
        counts[kind], trained[:] = len(trained), []
    both = read_rows(tmp_path / "both" / ROWS)
    for kind in ("label-free", "groups"):
        alone = figures(read_rows(tmp_path / kind / ROWS), kind)
        assert alone
        assert figures(both, kind) == alone
    free, groups = figures(both, "label-free"), figures(both, "groups")
    assert {m for m, _ in groups} - {m for m, _ in free} == {"groupdro"}
    epochs = [[table[at][1].get("best_epoch") for at in free] for table in (free, groups)]
    assert epochs[0] != epochs[1]  # each criterion kept weights of its own
    assert free["auto", 0][:2] == groups["auto", 0][:2]
    assert counts["both"] < counts["label-free"] + counts["groups"]


def test_both_tables_are_printed_and_a_set_without_groups_has_one(features, tmp_path):
    run = bench([features], options(["erm", "groupdro"], "both"), folder(tmp_path))
    titles = [t.title for t in run.tables]
    assert titles[0].endswith(", label-free")
    assert any(t.endswith(", groups") for t in titles)
    bare = miniatures.features(150)
    np.savez(tmp_path / "bare.npz", **{k: bare[k] for k in ("X", "y", "split")})
    source = Source(str(tmp_path / "bare.npz"), device="cpu")
    run = bench([source], options(["erm"], "both"), folder(tmp_path, "b"))
    assert not any(t.title.endswith(", groups") for t in run.tables)
    assert [r["protocol"] for r in read_rows(tmp_path / "b" / ROWS)] == ["label-free"] * 3


def test_a_last_layer_that_chooses_for_itself_needs_no_val_split(tmp_path):
    arrays = {**miniatures.features(n=240), "split": np.repeat([0, 2], [200, 40])}
    np.savez(tmp_path / "x.npz", **arrays)
    source = Source(str(tmp_path / "x.npz"), device="cpu")
    bench([source], options(["erm"]), folder(tmp_path))
    rows = [r for r in read_rows(tmp_path / "run" / ROWS) if r["kind"] == "model"]
    assert [r["tuning"]["scores"] for r in rows] == [[None] * SETTINGS]
    assert f"1 of {SETTINGS}" in protocol_text(rows)


def test_over_frozen_pictures_everyone_sees_the_same_features(cars, tmp_path, monkeypatch):
    seen = {}
    train = Workbench.trained

    def watched(self, spec, seed, ranker, select="auto", test=True):
        found = train(self, spec, seed, ranker, select, test)
        seen[self.options.protocol, spec.name] = found.run.prepared.task("train").inputs.shape
        return found

    monkeypatch.setattr(Workbench, "trained", watched)
    source = dataclasses.replace(cars, mode="features")
    bench([source], options(["erm", "lff"]), folder(tmp_path))
    bench([source], BenchOptions(parse_specs("erm"), 1), folder(tmp_path, "alone"))
    assert seen["label-free", "erm"] == seen["label-free", "lff"] != seen[None, "erm"]


def test_the_protocol_takes_no_settings_but_its_own():
    with pytest.raises(UsageError, match="declares all settings"):
        BenchOptions(parse_specs("erm"), overrides=("epochs=3",), protocol="groups")
    with pytest.raises(UsageError, match="neither label-free nor groups nor both"):
        BenchOptions(parse_specs("erm"), protocol="mine")


def test_the_declared_settings_are_settings_of_every_method():
    found = grids(protocol.GRIDS)
    for mode in ("finetune", "scratch", "features"):
        declared = [tuple(setting) for setting in found[mode]["settings"]]
        assert len(set(declared)) == len(declared) > 1
    for name in METHODS:
        for mode in ("finetune", "scratch", "features"):
            for spec in settings_for(parse_specs(name)[0], mode):
                names = {f.name for f in dataclasses.fields(method_class(name).config_class)}
                assert {o.partition("=")[0] for o in spec.overrides} <= names
