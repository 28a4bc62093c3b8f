"""A ranking that is given belongs to the data, in whatever order it lies; groups have values."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.workflows.debias import DebiasOptions, debias
from sebra.workflows.prepared import Source
from sebra.workflows.rank import RankOptions, rank

SHORT = ("epochs=2",)


def data(tmp_path, name="x.npz", **changes):
    file = tmp_path / name
    arrays = miniatures.features(n=600) | changes
    np.savez(file, **{k: v for k, v in arrays.items() if v is not None})
    return Source(str(file), device="cpu")


@pytest.fixture
def ranked(tmp_path):
    source = data(tmp_path)
    run = rank(source, RankOptions())
    file = tmp_path / "ranking.parquet"
    run.ranking.save(file)
    return source, file, run


def trained(source, file, method="resample"):
    return debias(source, DebiasOptions(method, overrides=SHORT, ranking=str(file), min_group=1))


def test_rows_in_another_order_and_more_of_them_change_nothing(ranked, tmp_path):
    source, file, _ = ranked
    table = pd.read_parquet(file)
    more = table.head(3).assign(id=["p", "q", "r"])
    other = tmp_path / "sorted.parquet"
    pd.concat([table, more]).sort_values(["label", "rank"]).to_parquet(other)
    one, two = trained(source, file), trained(source, other)
    assert one.metrics["ranking"]["somers_d"] > 0.5
    assert one.metrics["ranking"]["somers_d"] == two.metrics["ranking"]["somers_d"]
    assert one.metrics["evaluation"] == two.metrics["evaluation"]
    assert two.ranking.table["id"].tolist() == table["id"].tolist()


def test_samples_that_marks_drop_leave_the_ranking_too(ranked, tmp_path):
    from dataclasses import replace

    source, file, _ = ranked
    marks = tmp_path / "marks.csv"
    marks.write_text("id,mark,label\n1,drop,\n2,drop,\n", encoding="utf-8")
    run = trained(replace(source, exclude=str(marks)), file)
    assert len(run.ranking) == len(pd.read_parquet(file)) - 2


def test_a_ranking_of_other_data_with_the_same_ids_is_refused(ranked, tmp_path, call_cli):
    _, file, run = ranked
    labels = miniatures.features(n=600)["y"]
    for name, y in (("flip.npz", 1 - labels), ("named.npz", np.array(["a", "b"])[labels])):
        other = data(tmp_path, name, y=y)
        with pytest.raises(UsageError, match=r"have another label in the ranking \(first: 0, '0'"):
            trained(other, file)
    few = labels.copy()
    few[:20] = 1 - few[:20]  # mended since
    assert trained(data(tmp_path, "few.npz", y=few), file).ranking is not None
    folder = tmp_path / "run"
    assert call_cli("rank", run.prepared.source.data, "--out", folder).status == 0
    done = call_cli("evaluate", folder, tmp_path / "flip.npz")
    assert done.status == 2
    assert "made from other data" in done.stderr


@pytest.mark.parametrize(
    ("column", "values"),
    [("bucket", 0.5), ("bucket", -1), ("rank", np.nan), ("spuriosity", 2.0), ("bucket", "x")],
)
def test_columns_of_wrong_numbers_are_refused(ranked, tmp_path, column, values):
    _, file, _ = ranked
    bad = tmp_path / "bad.parquet"
    pd.read_parquet(file).assign(**{column: values}).to_parquet(bad)
    with pytest.raises(UsageError, match=f"column {column} must hold"):
        Ranking.load(bad)


class Test_attributes_that_are_missing:
    @staticmethod
    def cue(where, count=None):
        """The attribute as text, empty for `count` samples of a split (all of them for None)."""
        arrays = miniatures.features(n=600)
        values = arrays["cue"].astype(float)
        rows = np.flatnonzero(arrays["split"] == ("train", "val").index(where))
        values[rows if count is None else rows[:count]] = np.nan
        return values

    def run(self, tmp_path, method, cue=None):
        changes = {} if cue is None else {"cue": cue}
        options = DebiasOptions(method, overrides=SHORT, min_group=1)
        return debias(data(tmp_path, **changes), options)

    def test_are_no_group_of_their_own_in_the_val_split(self, tmp_path):
        whole = self.run(tmp_path, "dfr").metrics
        gap = self.run(tmp_path, "dfr", self.cue("val", 1)).metrics
        assert any("1 val samples without attributes" in n for n in gap["notes"])
        assert gap["evaluation"]["worst_group"] > whole["evaluation"]["worst_group"] - 20

    def test_in_training_are_nothing_to_dfr(self, tmp_path):
        self.run(tmp_path, "dfr", self.cue("train"))

    def test_are_left_out_by_groupdro(self, tmp_path):
        notes = self.run(tmp_path, "groupdro", self.cue("train", 3)).metrics["notes"]
        assert "3 training samples without attributes are left out" in notes

    @pytest.mark.parametrize(("method", "where"), [("groupdro", "train"), ("dfr", "val")])
    def test_everywhere_leave_nothing_to_balance(self, tmp_path, method, where):
        with pytest.raises(UsageError, match=f"no {where.replace('train', 'training')} sample of"):
            self.run(tmp_path, method, self.cue(where))


def test_dfr_describes_the_model_it_returns(tmp_path):
    run = debias(data(tmp_path), DebiasOptions("dfr", overrides=SHORT, min_group=1))
    selection = run.metrics["selection"]
    assert selection["best_epoch"] == 2  # after both epochs
    assert "test_accuracy" not in run.history[-1]  # the test split is looked at once, at the end


@pytest.mark.parametrize(
    "setting", ["weight_decay=-1", "weight_decay=nan", "momentum=-1", "momentum=1", "lr=inf"]
)
def test_steps_that_no_optimiser_takes_are_refused(tmp_path, call_cli, setting):
    done = call_cli("debias", data(tmp_path).data, "--method", "erm", "--set", setting)
    assert done.status == 2, done.stderr
    assert setting.partition("=")[0] in done.stderr


def test_a_ranker_for_a_method_without_a_ranking_is_refused(tmp_path, call_cli):
    done = call_cli("debias", data(tmp_path).data, "--method", "erm", "--rank-method", "peel")
    assert done.status == 2
    assert "erm uses no ranking" in done.stderr


def test_resampling_by_stages_peels_first(tmp_path):
    options = DebiasOptions("resample", overrides=("by=stages", *SHORT), min_group=1)
    run = debias(data(tmp_path, **miniatures.features(n=1800)), options)
    assert run.ranking is not None
    assert any("ranking first (method peel)" in n for n in run.metrics["notes"])


def test_the_table_of_groups_is_all_there_is_on_stdout(tmp_path, call_cli):
    folder = tmp_path / "run"
    source = data(tmp_path).data
    assert (
        call_cli("debias", source, "--method", "erm", *("--set", SHORT[0]), "--out", folder).status
        == 0
    )
    done = call_cli("evaluate", folder, source, "--format", "csv")
    rows = done.stdout.splitlines()
    assert rows[0] == "group,train,test,accuracy"
    assert all(row.count(",") >= 3 for row in rows)
    assert call_cli("evaluate", folder, source, "--k", "0").status == 2
    found = call_cli("evaluate", folder, source, "--json")
    assert json.loads(found.stdout)["evaluation"]
