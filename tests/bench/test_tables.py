"""Tables of a benchmark: the figures of the rows, the paper's beside them; studies."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

import miniatures
from benches import folder, options, row_of, runs_in
from sebra.errors import UsageError
from sebra.workflows.prepared import Source
from sebra_bench.bench import bench, study
from sebra_bench.paper import FILE, Paper
from sebra_bench.plan import BenchOptions
from sebra_bench.summary import Entry, over_baseline
from sebra_bench.tables import cell, methods_table


class Test_tables:
    def test_a_method_that_cannot_run_is_shown_with_the_reason(self, tmp_path):
        data = f"bar:{miniatures.bar(tmp_path / 'bar', n=10)}"
        source = Source(data, device="cpu", backbone="small")
        run = bench([source], options("erm,groupdro", seeds=1), folder(tmp_path))
        table = run.tables[0]
        erm, without = table.shown
        assert "(68.0, " in erm["acc. at best val. epoch"]
        assert without["acc. at best val. epoch"] == "–"
        assert any(r.startswith("groupdro: needs attribute columns") for r in table.remarks)
        text = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
        assert "| groupdro | yes | 0 | – |" in text

    def test_the_figures_of_the_table_are_those_of_the_rows(self, features, tmp_path):
        bench([features], options("erm,lle"), folder(tmp_path))
        rows = [row_of(tmp_path / "run", "erm", s) for s in (0, 1)]
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
        row = row_of(tmp_path / "run", "erm")
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
        assert runs_in(tmp_path / "run") == ["model erm 0"] * 2

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
