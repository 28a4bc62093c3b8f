"""The page of results is made from rows alone, and the committed one is up to date."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sebra.debiasing.registry import method_class
from sebra.errors import UsageError
from sebra.runs.config import settle
from sebra_bench.collected import collect
from sebra_bench.front import BEGIN, END, with_table
from sebra_bench.overview import overview
from sebra_bench.page import results_page
from sebra_bench.paper_tables import FORMS, paper_tables
from sebra_bench.protocol import declared
from sebra_bench.protocol_tables import protocol_rows
from sebra_bench.results import Results
from sebra_bench.rows import read_rows, settings_of
from sebra_bench.summary import Entry

COMMAND = "sebra bench results benchmarks/results --page docs/results.md"


def row(method, seed, data="urbancars", mode="finetune", date="2026-01-01", **more):
    figures = {
        "id_accuracy": 90.0 + seed,
        "worst_group": 40.0 + 10 * seed,
        "average_gap": -20.0,
        "gaps": {"background": -10.0, "object": -10.0, "background+object": -40.0},
    }
    return {
        "kind": "model",
        "method": method,
        "seed": seed,
        "data": data,
        "evaluation": figures,
        "selection": {},
        "seconds": {"debias": 30.0, "rank": 3.0},
        "network": {"mode": mode, "backbone": "resnet18", "image_size": 160},
        "hardware": {"cpu": "x", "threads": 1},
        "preset": "paper/urbancars",
        "date": date,
        "identity": {},
        **more,
    }


def ranking(method, seed, published, **more):
    return {**row(method, seed, **more), "kind": "ranking", "ranking": {"published": published}}


def put(folder: Path, *rows):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "rows.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows)


class Test_the_committed_page:
    def test_is_what_the_command_makes_of_the_committed_rows(self, repo_root, monkeypatch):
        monkeypatch.chdir(repo_root)
        made, rows = results_page(Path("benchmarks/results"), COMMAND)
        assert rows > 0
        committed = (repo_root / "docs" / "results.md").read_text(encoding="utf-8")
        assert committed == made, f"run: {COMMAND}"

    def test_the_table_of_the_front_page_is_what_the_rows_say(self, repo_root):
        page = (repo_root / "README.md").read_text(encoding="utf-8")
        made = with_table(page, protocol_rows(repo_root / "benchmarks" / "results"))
        assert page == made, f"run: {COMMAND} --front README.md"

    def test_what_the_front_page_says_of_debias_alone_is_what_the_rows_say(self, repo_root):
        page = " ".join((repo_root / "README.md").read_text(encoding="utf-8").split())
        folder = repo_root / "benchmarks" / "results"
        rows = [
            row
            for row in read_rows(folder / "h200-auto.jsonl")
            if row["method"] == "auto" and row.get("commit") == "798baba"
        ]

        def said(data, part, *keys):
            found = [row[part] for row in rows if row["data"] == data]
            assert len(found) == 3
            return " / ".join(f"{np.mean([one[key] for one in found]):.1f}" for key in keys)

        groups = "worst_group", "balanced_average", "id_accuracy"
        for data, name in (("urbancars", "UrbanCars"), ("celeba", "CelebA")):
            assert f"{said(data, 'figures', *groups)} on {name}" in page
            assert said(data, "plain", *groups) in page
        assert f"{said('bar', 'figures', 'average')} on BAR" in page
        blends = read_rows(folder / "2026-11-17-h200-recipes.jsonl")
        alone = [
            row["test"]
            for row in blends
            if row.get("kind") == "blend"
            and (row["set"], row["recipe"], row["epochs"]) == ("bar", "base", 20)
        ]
        assert f"without its second network {np.mean(alone):.1f}" in page


class Test_sections:
    def test_every_row_is_in_one_section_and_variants_lie_together(self, tmp_path):
        put(tmp_path / "a", row("erm", 0), row("erm", 1), ranking("sebra", 0, 0.8))
        put(tmp_path / "b", *(row("erm", 0, data=f"celeba?split={split}") for split in (0, 1)))
        (tmp_path / "b" / "notes.jsonl").write_text('{"kind": "trial"}\n', encoding="utf-8")
        first, second = collect(tmp_path)
        assert (first.where, len(first.rows)) == ("a", 3)
        assert (second.where, len(second.rows)) == ("b", 2)
        assert [r.data for r in second.results] == [
            "celeba?split=0",
            "celeba?split=1",
            "celeba, 2 variants together",
        ]

    def test_other_data_beside_variants_and_the_same_variant_twice_stay_apart(self, tmp_path):
        put(tmp_path / "x", *(row("erm", 0, data=f"celeba?split={split}") for split in (0, 1)))
        put(tmp_path / "x", row("erm", 0, data="cmnist?n=9"))
        for name in ("first", "second"):
            put(tmp_path / "y" / name, row("erm", 0, data="demo?n=300"))
        sections = collect(tmp_path)
        assert [(s.where, s.whole.data, len(s.rows)) for s in sections] == [
            ("x", "celeba, 2 variants together", 2),
            ("x", "cmnist?n=9", 1),
            ("y/first", "demo?n=300", 1),
            ("y/second", "demo?n=300", 1),
        ]

    def test_rows_without_a_preset_are_of_today_too(self, tmp_path):
        now = settings_of(
            settle(method_class("erm").config_class, "debias", "erm", "finetune", None).config
        )
        put(tmp_path / "none", row("erm", 0, settings=now, preset="none"))
        put(
            tmp_path / "old",
            *(row("erm", s, settings={"lr": 0.7}, preset="none") for s in range(3)),
        )
        text, _ = results_page(tmp_path, "x")
        assert "- UrbanCars: none\n" in text

    def test_the_paper_stands_beside_the_fine_tuned_folder_with_most_runs(self, tmp_path):
        put(tmp_path / "few", row("erm", 0, evaluation={"id_accuracy": 1.0}))
        put(tmp_path / "many", row("erm", 0), row("erm", 1))
        put(tmp_path / "frozen", *(row("erm", s, mode="features") for s in range(4)))
        text, rows = results_page(tmp_path, "x")
        assert rows == 7
        assert "- UrbanCars: many\n" in text
        assert "| ERM | 90.5 ± 0.7 (97.6, -7.1) | 45.0 ± 7.1 (33.2*, +11.8) |" in text

    def test_runs_of_todays_preset_go_before_more_runs_of_another(self, tmp_path):
        now = settings_of(
            settle(
                method_class("erm").config_class, "debias", "erm", "finetune", "paper/urbancars"
            ).config
        )
        put(tmp_path / "now", row("erm", 0, settings=now))
        before = {**now, "epochs": now["epochs"] - 1}
        put(tmp_path / "before", *(row("erm", s, settings=before) for s in range(3)))
        gone = [row("erm", s, settings={"lr": 0.7}, preset="best/none") for s in range(3)]
        put(tmp_path / "gone", *gone)
        text, _ = results_page(tmp_path, "x")
        assert "- UrbanCars: now\n" in text

    @pytest.mark.parametrize(("name", "words"), [("nowhere", "no folder"), ("", "no rows under")])
    def test_a_folder_without_rows_is_refused(self, tmp_path, name, words):
        with pytest.raises(UsageError, match=words):
            results_page(tmp_path / name, "x")

    def test_a_line_that_is_no_row_is_named(self, tmp_path):
        put(tmp_path, row("erm", 0))
        (tmp_path / "other.jsonl").write_text("{}\n[]\n", encoding="utf-8")
        with pytest.raises(UsageError, match=r"other\.jsonl, line 2: not a row"):
            results_page(tmp_path, "x")

    def test_groups_are_told_to_methods_that_work_on_no_ranking(self, tmp_path):
        put(tmp_path, row("dfr", 0), row("dfr[on=ranking]", 0, ranker="sebra"), row("erm", 0))
        ((results,),) = [section.results for section in collect(tmp_path)]
        assert {e.label: e.uses_groups for e in results.models} == {
            "erm": False,
            "dfr": True,
            "dfr[on=ranking]": False,
        }

    def test_groups_too_small_to_be_the_worst_are_named(self, tmp_path):
        def evaluation(accuracy):
            small = {"name": "a, b=c", "n_test": 6, "accuracy": accuracy, "small": True}
            large = {"name": "a, b=d", "n_test": 60, "accuracy": 50.0, "small": False}
            return {"worst_group": 50.0, "gaps": {}, "groups": [small, large]}

        put(tmp_path, *(row("erm", s, evaluation=evaluation(20.0 + s)) for s in range(2)))
        text, _ = results_page(tmp_path, "x", everything=True)
        assert (
            "- too small to count as the worst group: a, b=c (6 test samples), accuracy 20.0 to "
            "21.0 over all runs\n" in text
        )
        assert "a, b=d" not in text


class Test_the_first_table:
    def test_has_plain_training_the_papers_method_ours_and_the_best_baseline(self, tmp_path):
        def worst(method, figure, **more):
            evaluation = {"id_accuracy": 90.0, "worst_group": figure, "gaps": {}}
            chosen = {"criterion": "worst validation group"}
            return row(method, 0, evaluation=evaluation, selection=chosen, **more)

        put(
            tmp_path,
            worst("erm", 30.0),
            worst("sebra", 50.0, ranker="sebra"),
            worst("stages", 60.0, ranker="peel"),
            worst("lff", 31.0),
            worst("jtt", 41.0),
            worst("jtt[draws=equal]", 99.0),  # a setting of its own is no baseline
            worst("dfr", 80.0),
        )
        (line,) = overview(collect(tmp_path)).shown
        assert line["data"] == "UrbanCars"
        assert line["network"] == "resnet18, finetune"
        assert line["plain training"] == "30.0 (I.D. 90.0, 1)"
        assert line["paper's method"] == "50.0 (I.D. 90.0, 1)"
        assert line["ours"] == "stages on peel: 60.0 (I.D. 90.0, 1)"
        assert line["best baseline"] == "JTT: 41.0 (I.D. 90.0, 1)"
        assert line["told the true groups"] == "DFR: 80.0 (I.D. 90.0, 1)"
        assert line["paper: plain, Sebra"] == "33.2, 73.8"
        assert line["chosen by"] == "validation groups"

    def test_leaves_out_data_without_both_methods_to_compare(self, tmp_path):
        put(tmp_path, row("erm", 0))
        assert overview(collect(tmp_path)).shown == []


class Test_the_papers_tables:
    def test_only_data_sets_that_were_run_have_columns(self):
        found = Results("urbancars", "urbancars", [Entry("erm", rows=[row("erm", 0)])], [])
        tables = {t.title.partition(":")[0]: t for t in paper_tables({"urbancars": found})}
        assert list(tables) == ["Table 2, first part", "Table 4"]
        assert all("UrbanCars" in c for c in list(tables["Table 4"].shown[0])[1:])
        erm = next(r for r in tables["Table 4"].shown if r["method"] == "ERM")
        assert erm["UrbanCars: BG gap"] == "-10.0 (-15.3, +5.3)"
        figures = next(r for r in tables["Table 4"].figures if r["method"] == "ERM")
        assert figures["UrbanCars: BG gap, difference"] == pytest.approx(5.3)

    def test_unverified_metrics_are_marked_and_the_reason_is_given(self):
        rankings = [Entry(m, rows=[ranking(m, 0, 0.5)]) for m in ("random", "sebra")]
        (table,) = [
            t
            for t in paper_tables({"urbancars": Results("u", "urbancars", [], rankings)})
            if t.title.startswith("Table 1")
        ]
        shown = {r["ranking"]: r["UrbanCars: published score"] for r in table.shown}
        assert shown["random order"] == "0.50 (0.02*, +0.48)"
        assert shown["Sebra"] == "0.50 (0.85, -0.35)"
        assert any(remark.startswith("* metric unverified") for remark in table.remarks)

    def test_times_are_compared_by_their_ratio_to_erm(self):
        models = [Entry("erm", rows=[row("erm", 0)]), Entry("sebra", rows=[row("sebra", 0)])]
        found = Results("u", "urbancars", models, [Entry("sebra", rows=[ranking("sebra", 0, 0.5)])])
        table = paper_tables({"urbancars": found})[-1]
        assert table.title.startswith("Table 6")
        assert [r["times ERM"] for r in table.shown] == [
            "0.10 (0.16, -0.06)",
            "1.00 (1.62, -0.62)",
            "1.00 (1.00, +0.00)",
        ]

    def test_every_line_of_every_table_has_a_figure_of_the_paper(self):
        for table in paper_tables({}, everything=True):
            for line in table.shown:
                assert any("(" in text for text in list(line.values())[1:]), (table.title, line)
        assert len(FORMS) == 6  # Tables 1 to 5, the second in two parts; Table 6 is of times


def test_the_ablation_is_shown_wherever_it_was_run(tmp_path):
    figures = {"somers_d": 0.5, "plain_tau_b": 0.2, "published": 0.7}
    for name in ("erm", "sebra", "erm[by=last]"):
        found = {**ranking(name, 0, 0.7, data="celeba"), "ranking": figures}
        put(tmp_path / "one", found)
    put(tmp_path / "other", ranking("sebra", 0, 0.9))
    text, _ = results_page(tmp_path, "made")
    table = text[text.index("### Tables 1 and 3 on every set") :]
    (line,) = (t for t in table.splitlines()[:6] if t.startswith("| CelebA"))
    assert line.count("0.50 / 0.20 / 0.70") == 3
    assert "UrbanCars" not in table.partition("\n- ")[0]


class Test_the_tables_of_the_protocol:
    def made(self, method, seed, balanced, kind="label-free", **more):
        found = row(method, seed, **more)
        found["evaluation"] |= {"balanced_average": balanced}
        return {
            **found,
            "protocol": kind,
            "tuning": {"chosen": ["lr=1"], "scores": [70.0, 80.0]},
            "selection": {"criterion": "class", "score": 80.0},
            "identity": {"method": method, "weights": "abc", "content": "9 samples, f00"},
        }

    def test_are_apart_by_kind_and_ordered_by_the_group_balanced_average(self, tmp_path):
        rows = [self.made("erm", s, 60.0 + s) for s in (0, 1)]
        rows += [self.made("afr", 0, 75.0), self.made("auto", 0, 70.0, ranker="peel")]
        rows += [self.made("dfr", 0, 90.0, "groups")]
        put(tmp_path / "p", *rows, {**self.made("erm", 0, 99.0), "kind": "trial"})
        put(tmp_path / "old", row("erm", 0), row("sebra", 0))
        text, count = results_page(tmp_path, "made")
        assert count == 5 + 2
        free, _, groups = text.partition("## With validation groups")
        assert free.index("| afr |") < free.index("| auto |") < free.index("| erm |")
        assert "| erm | no | class | 2 of 2 | 2 | 60.5 ± 0.7 |" in free
        assert "`afr`; our best, `auto`, is 5.0 points behind" in free
        assert "weights abc; data: 9 samples, f00" in free
        assert "| dfr | yes |" in groups
        assert "99.0" not in text

    def test_the_front_page_gets_the_short_table_between_its_marks(self, tmp_path):
        rows = [self.made("erm", 0, 60.0), self.made("auto", 0, 70.0, ranker="peel")]
        rows += [self.made("afr", 0, 75.0), self.made("stages", 0, 65.0, ranker="peel")]
        rows += [self.made("dfr", 0, 90.0, "groups"), self.made("erm", 0, 61.0, "groups")]
        page = f"before\n\n{BEGIN}\n| stale |\n{END}\n\nafter\n"
        made = with_table(page, rows)
        assert made.startswith("before\n\n")
        assert made.endswith("\n\nafter\n")
        assert "stale" not in made
        assert with_table(made, rows) == made
        (line,) = (t for t in made.splitlines() if t.startswith("| UrbanCars"))
        assert line.split(" | ")[1:] == [
            "40.0 / 60.0 / 90.0",
            "40.0 / 70.0 / 90.0",
            "`stages` 40.0 / 65.0 / 90.0",
            "`afr` **40.0 / 75.0 / 90.0**",
            "`dfr` 40.0 / 90.0 / 90.0",
            "1 |",
        ]
        with pytest.raises(UsageError, match="needs the lines"):
            with_table("nothing", rows)

    def test_runs_that_chose_from_an_earlier_list_stand_apart(self, tmp_path):
        scores = {"chosen": ["lr=1"], "scores": [70.0, 80.0]}
        today = {**scores, "declared": declared("finetune")}
        earlier = {**scores, "declared": [["lr=1"], ["lr=2"]]}
        rows = [
            {**self.made("erm", 0, figure), "tuning": tuning}
            for figure, tuning in ((65.0, earlier), (60.0, today), (62.0, scores))
        ]
        put(tmp_path / "p", *rows)
        put(tmp_path / "old", row("erm", 0))
        text = results_page(tmp_path, "made")[0]
        now, then = (
            "### UrbanCars, fine-tuned, 2 settings\n",
            "### UrbanCars, fine-tuned, 2 settings of an earlier list",
        )
        assert text.index(now) < text.index("| 60.0 |") < text.index(then) < text.index("| 65.0 |")
        table = with_table(f"{BEGIN}\n{END}", rows)
        assert "/ 60.0 /" in table
        assert "/ 65.0 /" not in table

    def test_a_method_without_a_row_is_named(self, tmp_path):
        put(tmp_path / "p", self.made("erm", 0, 70.0), self.made("dfr", 0, 80.0, "groups"))
        put(tmp_path / "p", self.made("erm", 0, 70.0, data="celeba"))
        put(tmp_path / "p", self.made("lff", 0, 71.0, data="celeba"))
        put(tmp_path / "old", row("erm", 0))
        text = results_page(tmp_path, "made")[0]
        assert text.count("no row here: `lff` (not run") == 1
        assert "no row here: `dfr`" not in text  # it stands in the other table

    def test_nobody_is_ahead_of_who_is_level(self, tmp_path):
        put(tmp_path / "p", self.made("erm", 0, 70.0), self.made("auto", 0, 70.0, ranker="peel"))
        put(tmp_path / "old", row("erm", 0))
        said = "`auto`, which is ours (level: `erm`, `auto`)"
        assert said in results_page(tmp_path, "made")[0]

    def test_a_worst_group_that_cannot_be_told_is_a_range(self, tmp_path):
        found = self.made("erm", 0, 60.0)
        del found["evaluation"]["worst_group"]
        found["evaluation"]["worst_group_range"] = [0.0, 41.2]
        put(tmp_path / "p", found)
        put(tmp_path / "old", row("erm", 0))
        assert "0 to 41 (groups too small)" in results_page(tmp_path, "made")[0]
