"""Methods × seeds: rows that are there are not run again, and the figures are the right ones."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

import miniatures
from sebra.debiasing.contrastive import ContrastiveConfig
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import RunFolder
from sebra.workflows.bench import bench, study
from sebra.workflows.benching import workbench
from sebra.workflows.benching.paper import FILE, Paper
from sebra.workflows.benching.plan import (
    BenchOptions,
    backbone_name,
    data_name,
    parse_specs,
    with_shared,
)
from sebra.workflows.benching.rows import settings_of
from sebra.workflows.benching.summary import Entry, over_baseline
from sebra.workflows.benching.tables import cell, methods_table
from sebra.workflows.prepared import Source
from sebra.workflows.presets import preset_for

QUICK = ("epochs=2", "rank.epochs=2")


def options(methods, seeds=2, **more):
    more = {"overrides": QUICK, "min_group": 1, **more}
    return BenchOptions(parse_specs(methods), seeds, **more)


@pytest.fixture
def features(tmp_path):
    return Source(str(miniatures.npz(tmp_path / "two.npz")), device="cpu")


def folder(tmp_path, name="run"):
    return RunFolder.create(str(tmp_path / name), "bench")


def times(path):
    return {p.name: p.stat().st_mtime_ns for p in path.rglob("*.json") if p.name != "metrics.json"}


class Test_what_is_asked_for:
    def test_settings_in_brackets(self):
        found = parse_specs("erm, dfr[on=ranking,share=0.3],groupdro[over=buckets]")
        assert [s.label for s in found] == [
            "erm",
            "dfr[on=ranking,share=0.3]",
            "groupdro[over=buckets]",
        ]
        assert found[1].overrides == ("on=ranking", "share=0.3")
        assert found[1].slug == "dfr_on_ranking_share_0.3"

    @pytest.mark.parametrize("text", ["erm[", "erm]", "", "erm,,lff", "e rm[x]y", "../erm"])
    def test_what_is_no_method_is_refused(self, text):
        with pytest.raises(UsageError, match="--methods"):
            parse_specs(text)

    def test_a_method_given_twice_is_refused(self):
        with pytest.raises(UsageError, match="erm is given twice"):
            parse_specs("erm,lff,erm")

    def test_shared_settings_reach_only_methods_that_have_them_and_lose_to_their_own(self):
        from sebra.debiasing.registry import method_class

        erm, sebra = with_shared(
            parse_specs("erm,sebra[tau=0.3]"), ["tau=0.1", "epochs=3"], method_class
        )
        assert erm.overrides == ("epochs=3",)
        assert sebra.overrides == ("tau=0.1", "epochs=3", "tau=0.3")
        with pytest.raises(UsageError, match="none of erm has such a setting"):
            with_shared(parse_specs("erm"), ["tau=0.1"], method_class)

    def test_the_preset_follows_the_layout(self):
        assert preset_for("urbancars:x/y", None) == "paper/urbancars"
        assert preset_for("celeba:x?split=1", None) == "paper/celeba"
        assert preset_for("urbancars:x", "none") is None
        assert preset_for("x/urbancars", None) is None
        assert preset_for("demo", None) is None

    def test_names_of_data_leave_the_folder_out(self):
        assert data_name("urbancars:/some/where/cars") == "urbancars"
        assert data_name("celeba:/some/where?split=2") == "celeba?split=2"
        assert data_name("/some/where/two.npz") == "two.npz"
        assert data_name("imagenet:x?w=1&in9=/some/where/nine") == "imagenet?w=1&in9=nine"
        assert backbone_name("/some/where/minilm/model/") == "minilm/model"
        assert backbone_name("resnet18") == "resnet18"
        assert backbone_name("some-org/encoder") == "some-org/encoder"


class Test_rows:
    def test_nothing_is_run_twice_and_more_seeds_add_to_what_is_there(
        self, features, tmp_path, monkeypatch
    ):
        bench([features], options("erm,sebra", seeds=1), folder(tmp_path))
        before = times(tmp_path / "run")
        assert set(before) == {"erm-0.json", "sebra-0.json"}
        assert len(list((tmp_path / "run" / "rankings").glob("*.parquet"))) == 1
        bench([features], options("erm,sebra", seeds=2), folder(tmp_path))
        after = times(tmp_path / "run")
        assert {k: after[k] for k in before} == before
        assert "erm-1.json" in after
        assert "sebra-1.json" in after
        monkeypatch.setattr(workbench, "debias_prepared", None)  # a run would now fail
        again = bench([features], options("erm,sebra", seeds=2), folder(tmp_path))
        assert again.metrics["datasets"][0]["methods"]["erm"]["seeds"] == [0, 1]

    def test_methods_of_a_seed_share_one_ranking(self, features, tmp_path, monkeypatch):
        made = []
        save = Ranking.save
        monkeypatch.setattr(
            Ranking, "save", lambda self, path: (made.append(path), save(self, path))
        )
        run = bench([features], options("sebra,dfr[on=ranking],erm", seeds=1), folder(tmp_path))
        assert [p.name for p in made] == ["sebra-0.parquet"]
        figures = run.metrics["datasets"][0]["methods"]
        assert figures["sebra"]["ranking"] == figures["dfr[on=ranking]"]["ranking"]
        assert "ranking" not in figures["erm"]

    def test_a_row_holds_what_is_needed_to_judge_it(self, features, tmp_path):
        bench([features], options("sebra", seeds=1), folder(tmp_path))
        row = json.loads((tmp_path / "run" / "rows" / "sebra-0.json").read_text("utf-8"))
        assert row["method"] == "sebra"
        assert row["seed"] == 0
        assert 0 <= row["evaluation"]["worst_group"] <= 100
        assert row["selection"]["criterion"] == "worst validation group"
        assert -1 <= row["ranking"]["somers_d"] <= 1
        assert row["seconds"]["debias"] > 0
        assert row["hardware"]["cores"] >= 1
        assert row["versions"]["torch"]
        assert row["settings"]["epochs"] == 2
        assert row["date"][:2] == "20"
        assert str(tmp_path) not in json.dumps(row)  # the same on every machine

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"overrides": ("epochs=3", "rank.epochs=2")}, "settings.epochs"),
            ({"min_group": 2}, "min_group"),
        ],
    )
    def test_another_identity_is_refused_with_the_difference(
        self, features, tmp_path, change, named
    ):
        bench([features], options("erm", seeds=1), folder(tmp_path))
        before = times(tmp_path / "run")
        with pytest.raises(UsageError, match=rf"erm-0\.json: was measured with another {named}"):
            bench([features], options("erm", seeds=1, **change), folder(tmp_path))
        assert times(tmp_path / "run") == before

    def test_rows_from_before_a_setting_existed_stay_valid(self, features, tmp_path):
        neutral = options("sebra[hard=0]", 1, overrides=(*QUICK, "rank.enough=0"))
        bench([features], neutral, folder(tmp_path))
        row = next((tmp_path / "run" / "rows").glob("*.json"))
        said = json.loads(row.read_text(encoding="utf-8"))["identity"]
        assert "hard" not in said["settings"]
        assert "enough" not in said["ranker_settings"]
        before = times(tmp_path / "run")
        bench([features], neutral, folder(tmp_path))
        assert times(tmp_path / "run") == before
        assert settings_of(ContrastiveConfig(hard=1.0))["hard"] == 1.0

    def test_other_data_of_the_same_name_is_refused_before_anything_runs(self, features, tmp_path):
        bench([features], options("erm", seeds=1), folder(tmp_path))
        miniatures.npz(tmp_path / "two.npz", X=miniatures.features(seed=9)["X"])
        with pytest.raises(UsageError, match="another content"):
            bench([features], options("lff,erm", seeds=1), folder(tmp_path))
        assert set(times(tmp_path / "run")) == {"erm-0.json"}

    def test_a_file_that_is_no_row_is_named(self, features, tmp_path):
        bench([features], options("erm", seeds=1), folder(tmp_path))
        (tmp_path / "run" / "rows" / "erm-0.json").write_text("{", encoding="utf-8")
        with pytest.raises(UsageError, match=r"erm-0\.json: not a row"):
            bench([features], options("erm", seeds=1), folder(tmp_path))

    def test_the_data_is_prepared_once_and_a_seed_gives_what_a_single_run_gives(
        self, features, tmp_path, monkeypatch
    ):
        from dataclasses import replace

        from sebra.workflows.debias import DebiasOptions, debias
        from sebra.workflows.prepared import Prepared

        loaded = []
        load = Prepared._load
        monkeypatch.setattr(
            Prepared, "_load", lambda self, name: (loaded.append(name), load(self, name))[1]
        )
        bench([features], options("erm,lff"), folder(tmp_path))
        assert sorted(loaded) == ["test", "train", "val"]
        row = json.loads((tmp_path / "run" / "rows" / "erm-1.json").read_text("utf-8"))
        single = debias(
            replace(features, seed=1), DebiasOptions("erm", overrides=("epochs=2",), min_group=1)
        )
        assert row["evaluation"]["groups"] == single.metrics["evaluation"]["groups"]


class Test_the_network_that_ranks:
    @pytest.fixture
    def cars(self, tmp_path):
        from safetensors.torch import save_file

        from sebra.engine.networks import NetworkSpec, build

        network = build(NetworkSpec("test_resnet", (3, 32, 32), 2), 5)
        file = tmp_path / "weights.safetensors"
        save_file({k: v.contiguous() for k, v in network.body.state_dict().items()}, file)
        return Source(
            f"urbancars:{miniatures.urbancars(tmp_path / 'cars', aligned=8)}",
            device="cpu",
            mode="finetune",
            backbone="test_resnet",
            weights=str(file),
        )

    def test_may_start_from_other_weights(self, cars, tmp_path):
        one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
        bench([cars], options("sebra", seeds=1), one)
        bench([cars], options("sebra", seeds=1, rank_weights="none"), other)
        rankings = [
            json.loads((f.path / "rankings" / "sebra-0.json").read_text("utf-8"))
            for f in (one, other)
        ]
        models = [
            json.loads((f.path / "rows" / "sebra-0.json").read_text("utf-8")) for f in (one, other)
        ]
        assert rankings[0]["network"]["mode"] == "finetune"
        assert rankings[1]["network"]["mode"] == "scratch"
        assert rankings[1]["identity"]["weights"] == "none"
        assert models[1]["identity"]["weights"] == models[0]["identity"]["weights"] != "none"
        tables = [Ranking.load(f.path / "rankings" / "sebra-0.parquet").table for f in (one, other)]
        assert tables[0]["id"].tolist() == tables[1]["id"].tolist()
        assert tables[0]["rank"].tolist() != tables[1]["rank"].tolist()
        with pytest.raises(UsageError, match="another ranker_weights"):
            bench([cars], options("sebra", seeds=1), other)

    def test_may_be_frozen(self, cars, tmp_path):
        one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
        bench([cars], options("sebra", seeds=1, rank_mode="features"), one)
        ranking = json.loads((one.path / "rankings" / "sebra-0.json").read_text("utf-8"))
        model = json.loads((one.path / "rows" / "sebra-0.json").read_text("utf-8"))
        assert ranking["network"]["mode"] == model["identity"]["ranker_mode"] == "features"
        assert model["network"]["mode"] == "finetune"
        assert ranking["identity"]["weights"] == model["identity"]["weights"] != "none"
        with pytest.raises(UsageError, match="another ranker_mode"):
            bench([cars], options("sebra", seeds=1), one)
        preset = tmp_path / "mine.toml"
        preset.write_text('[network.sebra]\nrank_mode = "features"\n')
        bench([cars], options("sebra", seeds=1, preset=str(preset)), other)
        again = json.loads((other.path / "rankings" / "sebra-0.json").read_text("utf-8"))
        assert again["network"]["mode"] == "features"

    def test_is_that_of_the_preset_where_debias_ranks_first(self, cars, tmp_path):
        from sebra.workflows.debias import DebiasOptions, debias

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

    def test_cannot_be_frozen_without_weights_nor_thawed(self, cars, features, tmp_path):
        from dataclasses import replace

        scratch = replace(cars, weights="none")
        with pytest.raises(UsageError, match="--rank-mode features: needs pretrained weights"):
            bench([scratch], options("sebra", rank_mode="features"), folder(tmp_path))
        with pytest.raises(UsageError, match="--rank-mode: rankings over frozen features"):
            bench([features], options("sebra", rank_mode="finetune"), folder(tmp_path))
        with pytest.raises(UsageError, match="--rank-mode: 'frozen'"):
            options("sebra", rank_mode="frozen")

    def test_does_not_judge_its_own_ranking(self, cars, tmp_path, monkeypatch):
        """PD compares rankings, so it is measured with one network: that of the methods."""
        from dataclasses import replace

        from sebra.workflows.benching import workbench

        asked = []

        def noted(prepared, index, session):
            asked.append((prepared.mode, prepared.source.seed))
            return 50.0

        monkeypatch.setattr(workbench, "subset_accuracy", noted)
        bar = replace(cars, data=f"bar:{miniatures.bar(tmp_path / 'bar', n=8)}")
        bench([bar], options("sebra", seeds=2, rank_weights="none"), folder(tmp_path))
        assert set(asked) == {("finetune", 0), ("finetune", 1)}

    def test_is_the_backbone_of_the_features_in_features_mode(self, features, tmp_path):
        with pytest.raises(UsageError, match="--rank-weights: rankings over frozen features"):
            bench([features], options("sebra", rank_weights="none"), folder(tmp_path))


class Test_tables:
    def test_a_method_that_cannot_run_is_shown_with_the_reason(self, tmp_path):
        data = f"bar:{miniatures.bar(tmp_path / 'bar', n=10)}"
        source = Source(data, device="cpu", backbone="small")
        run = bench([source], options("erm,groupdro", seeds=1), folder(tmp_path))
        table = run.tables[0]
        erm, without = table.shown
        assert float(erm["acc., mean of last 5 epochs"]) >= 0
        assert "(68.0, " in erm["acc. at best val. epoch"]
        assert without["acc. at best val. epoch"] == "–"
        assert any(r.startswith("groupdro: needs attribute columns") for r in table.remarks)
        text = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
        assert "| groupdro | yes | 0 | – | – |" in text

    def test_the_figures_of_the_table_are_those_of_the_rows(self, features, tmp_path):
        bench([features], options("erm,lle"), folder(tmp_path))
        rows = [
            json.loads((tmp_path / "run" / "rows" / f"erm-{s}.json").read_text("utf-8"))
            for s in (0, 1)
        ]
        worst = [r["evaluation"]["worst_group"] for r in rows]
        text = (tmp_path / "run" / "table.csv").read_text(encoding="utf-8")
        first, second = list(csv.DictReader(io.StringIO(text)))[:2]
        assert float(first["worst_group_mean"]) == pytest.approx(np.mean(worst))
        assert float(first["worst_group_std"]) == pytest.approx(np.std(worst, ddof=1))
        assert second["method"] == "lle (general augmentations)"
        metrics = json.loads((tmp_path / "run" / "metrics.json").read_text("utf-8"))
        joined = metrics["datasets"][0]["methods"]["erm"]["evaluation"]["worst_group"]
        assert joined["n"] == 2
        assert joined["mean"] == pytest.approx(np.mean(worst))
        assert (tmp_path / "run" / "table.tex").read_text("utf-8").count(r"\begin{tabular}") == 2

    def test_sets_beside_imagenet_give_gaps_beside_the_papers(self, tmp_path):
        nine = miniatures.imagenet_9(tmp_path / "nine")
        data = f"imagenet:{miniatures.imagenet(tmp_path / 'in')}?in9={nine}"
        source = Source(data, device="cpu", backbone="small")
        run = bench([source], options("erm", seeds=1), folder(tmp_path))
        assert run.metrics["datasets"][0]["data"] == "imagenet?in9=nine"  # without its folder
        row = json.loads((tmp_path / "run" / "rows" / "erm-0.json").read_text("utf-8"))
        sets = {k: v["accuracy"] for k, v in row["evaluation"]["companions"].items()}
        gap = sets["IN-9 mixed-rand"] - sets["IN-9 mixed-same"]
        assert row["evaluation"]["gaps"] == {"IN-9": pytest.approx(gap)}
        (table,) = [t for t in run.tables if t.title.startswith("Table 2, second part")]
        shown = next(r for r in table.shown if r["method"] == "ERM")
        assert shown["ImageNet-1K: IN-9 gap"] == f"{gap:.2f} (-5.53, {gap + 5.53:+.2f})"

    def test_several_data_sets_and_variants_of_one(self, tmp_path):
        data = f"celeba:{miniatures.celeba(tmp_path / 'celeba')}"
        sources = [Source(f"{data}?split={i}", device="cpu", backbone="small") for i in (0, 1)]
        run = bench(sources, options("erm", seeds=1), folder(tmp_path))
        names = [d["data"] for d in run.metrics["datasets"]]
        assert names[-1] == "celeba, 2 variants together"
        assert run.metrics["datasets"][-1]["methods"]["erm"]["evaluation"]["average"]["n"] == 2
        assert len(list((tmp_path / "run").glob("celeba*/rows/erm-0.json"))) == 2

    def test_minus_erm_is_paired_over_seeds(self):
        def rows(values):
            return [
                {"data": "x", "seed": s, "evaluation": {"average": v, "gaps": {}}, "selection": {}}
                for s, v in values.items()
            ]

        erm = Entry("erm", rows=rows({0: 50.0, 1: 60.0, 2: 70.0}))
        ours = Entry("sebra", rows=rows({2: 73.0, 0: 51.0, 3: 99.0}))  # seed 3 has no partner
        (found,) = over_baseline([erm, ours])
        assert found.n == 2
        assert found.mean == pytest.approx(2.0)
        assert found.standard_error == pytest.approx(math.sqrt(2) / math.sqrt(2))
        assert over_baseline([ours]) == []

    def test_a_cell_says_ours_then_the_papers_then_the_difference(self):
        ours = {"mean": 94.94, "std": 0.26, "n": 4}
        assert cell(ours, {"mean": 97.6}) == "94.9 ± 0.3 (97.6, -2.7)"
        assert cell({**ours, "n": 1}, None) == "94.9"
        assert cell(None, {"mean": 1.0}, mark="*") == "– (1.0*)"

    def test_a_variant_of_a_method_does_not_carry_the_papers_figures(self):
        row = {
            "data": "x",
            "seed": 0,
            "evaluation": {"id_accuracy": 90.0, "gaps": {"background": -5.0}},
            "selection": {},
        }
        table = methods_table(
            "x", [Entry("sebra", rows=[row]), Entry("sebra[tau=1]", rows=[row])], Paper("urbancars")
        )
        assert table.shown[0]["I.D. acc."] == "90.0 (92.5, -2.5)"
        assert table.shown[1]["I.D. acc."] == "90.0"


class Test_the_papers_figures:
    @pytest.mark.parametrize("layout", ["urbancars", "celeba"])
    def test_average_gaps_are_the_means_of_the_gaps(self, layout):
        """The paper's own arithmetic, so that a slip in copying shows."""
        paper = Paper(layout)
        for name in ("groupdro", "erm", "lff", "jtt", "debian", "dfr", "sebra"):
            found = paper.method(name)
            gaps = [v["mean"] for k, v in found.items() if k.startswith("gaps.")]
            assert len(gaps) == 3
            assert np.mean(gaps) == pytest.approx(found["average_gap"]["mean"], abs=0.08)

    def test_figures_that_no_random_order_could_have_are_marked(self):
        paper = Paper("urbancars")
        assert paper.ranking("sebra")["published"]["mean"] == 0.85
        assert not paper.unverified("sebra")
        assert paper.unverified("random")
        assert not Paper("bar").unverified("random")  # PD is another measure
        assert "worst_group" in paper.doubtful

    def test_the_file_is_read_as_utf8_and_unknown_data_has_no_figures(self):
        FILE.read_text(encoding="utf-8")
        assert not Paper(None)
        assert Paper("demo").method("erm") == {}


class Test_studies:
    def test_the_ablation_compares_with_the_paper_and_marks_what_is_unverified(self, tmp_path):
        data = f"urbancars:{miniatures.urbancars(tmp_path / 'cars')}"
        source = Source(data, device="cpu", backbone="small")
        run = study(
            "ablation", source, BenchOptions((), 1, None, ("rank.epochs=1",)), folder(tmp_path)
        )
        shown = {row["ranking"]: row["published score"] for row in run.tables[0].shown}
        assert "(0.85, " in shown["sebra"]
        assert "(0.79, " in shown["sebra[use_u=false]"]
        assert "(0.12*, " in shown["erm"]
        assert "(0.02*, " in shown["random"]
        assert any("metric unverified" in r for r in run.tables[0].remarks)

    def test_settings_of_methods_make_no_sense_where_only_rankings_are_made(
        self, features, tmp_path
    ):
        with pytest.raises(UsageError, match=r"write --set rank\.epochs=2"):
            study("ablation", features, BenchOptions((), 1, None, ("epochs=2",)), folder(tmp_path))

    def test_data_on_which_no_ranking_can_be_measured_is_refused(self, tmp_path):
        data = miniatures.npz(tmp_path / "x.npz")
        arrays = dict(np.load(data))
        del arrays["cue"], arrays["split"]
        np.savez(data, **arrays)
        with pytest.raises(UsageError, match="neither attributes nor a test split"):
            study(
                "beta",
                Source(str(data), device="cpu"),
                BenchOptions((), 1, None, ("rank.epochs=1",)),
                folder(tmp_path),
            )
