"""Methods × seeds: rows that are there are not run again, and the figures are the right ones."""

from __future__ import annotations

import json

import pytest

import miniatures
from benches import QUICK, folder, options, row_of, runs_in
from sebra.debiasing.contrastive import ContrastiveConfig
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra_bench import workbench
from sebra_bench.bench import bench
from sebra_bench.plan import (
    backbone_name,
    data_name,
    parse_specs,
    preset_for,
    with_shared,
)
from sebra_bench.rows import settings_of


def lines(run):
    return (run / "rows.jsonl").read_text(encoding="utf-8").splitlines()


class Test_what_is_asked_for:
    def test_settings_in_brackets(self):
        found = parse_specs("erm, dfr[on=ranking,c=0.3],groupdro[over=buckets]")
        assert [s.label for s in found] == [
            "erm",
            "dfr[on=ranking,c=0.3]",
            "groupdro[over=buckets]",
        ]
        assert found[1].overrides == ("on=ranking", "c=0.3")
        assert found[1].slug == "dfr_on_ranking_c_0.3"

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
        before = lines(tmp_path / "run")
        assert runs_in(tmp_path / "run") == [
            "ranking sebra 0",
            "model erm 0",
            "model sebra on sebra 0",
        ]
        assert len(list((tmp_path / "run" / "rankings").glob("*.parquet"))) == 1
        bench([features], options("erm,sebra", seeds=2), folder(tmp_path))
        assert lines(tmp_path / "run")[:3] == before
        assert {"model erm 1", "model sebra on sebra 1"} < set(runs_in(tmp_path / "run"))
        monkeypatch.setattr(workbench, "debias_prepared", None)  # a run would now fail
        again = bench([features], options("erm,sebra", seeds=2), folder(tmp_path))
        assert again.metrics["datasets"][0]["methods"]["erm"]["seeds"] == [0, 1]

    def test_methods_of_a_seed_share_one_ranking(self, features, tmp_path, monkeypatch):
        made = []
        save = Ranking.save
        monkeypatch.setattr(
            Ranking, "save", lambda self, path: (made.append(path), save(self, path))
        )
        run = bench(
            [features], options("sebra,groupdro[over=buckets],erm", seeds=1), folder(tmp_path)
        )
        assert [p.name for p in made] == ["two.npz.sebra-0.parquet"]
        figures = run.metrics["datasets"][0]["methods"]
        assert figures["sebra"]["ranking"] == figures["groupdro[over=buckets]"]["ranking"]
        assert "ranking" not in figures["erm"]

    def test_a_row_holds_what_is_needed_to_judge_it(self, features, tmp_path):
        bench([features], options("sebra", seeds=1), folder(tmp_path))
        row = row_of(tmp_path / "run", "sebra")
        assert row["method"] == "sebra"
        assert row["seed"] == 0
        assert 0 <= row["evaluation"]["worst_group"] <= 100
        assert row["selection"]["criterion"] == "class"  # nobody asked for groups
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
        before = lines(tmp_path / "run")
        with pytest.raises(
            UsageError, match=rf"row of .* erm, 0 was measured with another {named}"
        ):
            bench([features], options("erm", seeds=1, **change), folder(tmp_path))
        assert lines(tmp_path / "run") == before

    def test_rows_from_before_a_setting_existed_stay_valid(self, features, tmp_path):
        neutral = options("sebra[hard=0]", 1, overrides=(*QUICK, "rank.enough=0"))
        bench([features], neutral, folder(tmp_path))
        said = row_of(tmp_path / "run", "sebra[hard=0]")["identity"]
        assert "hard" not in said["settings"]
        assert "enough" not in said["ranker_settings"]
        before = lines(tmp_path / "run")
        bench([features], neutral, folder(tmp_path))
        assert lines(tmp_path / "run") == before
        assert settings_of(ContrastiveConfig(hard=1.0))["hard"] == 1.0

    def test_other_data_of_the_same_name_is_refused_before_anything_runs(self, features, tmp_path):
        bench([features], options("erm", seeds=1), folder(tmp_path))
        miniatures.npz(tmp_path / "two.npz", X=miniatures.features(seed=9)["X"])
        with pytest.raises(UsageError, match="another content"):
            bench([features], options("lff,erm", seeds=1), folder(tmp_path))
        assert runs_in(tmp_path / "run") == ["model erm 0"]

    def test_a_line_that_is_no_row_is_named(self, features, tmp_path):
        bench([features], options("erm", seeds=1), folder(tmp_path))
        (tmp_path / "run" / "rows.jsonl").write_text("{\n", encoding="utf-8")
        with pytest.raises(UsageError, match=r"rows\.jsonl, line 1: not a row"):
            bench([features], options("erm", seeds=1), folder(tmp_path))

    def test_a_line_cut_off_while_it_was_written_is_run_again(self, features, tmp_path):
        bench([features], options("erm,lff", seeds=1), folder(tmp_path))
        file = tmp_path / "run" / "rows.jsonl"
        first, second = lines(tmp_path / "run")
        file.write_text(f"{first}\n{second[:-100]}", encoding="utf-8")
        bench([features], options("erm,lff", seeds=1), folder(tmp_path))
        assert lines(tmp_path / "run")[0] == first
        assert runs_in(tmp_path / "run") == ["model erm 0", "model lff 0"]

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
        row = row_of(tmp_path / "run", "erm", 1)
        single = debias(
            replace(features, seed=1), DebiasOptions("erm", overrides=("epochs=2",), min_group=1)
        )
        assert row["evaluation"]["groups"] == single.metrics["evaluation"]["groups"]
