"""Maps are found for pictures, survive the run folder and reach the report."""

from __future__ import annotations

import numpy as np

import miniatures
from sebra.runs.folder import RunFolder
from sebra.workflows.prepared import Source
from sebra.workflows.rank import RankOptions, rank
from sebra.workflows.report import report_run
from sebra.workflows.saliency import FILE, load_saliency, save_saliency


def test_maps_come_with_a_ranking_of_pictures(tmp_path):
    source = Source("demo?n=120", device="cpu", mode="features", backbone="random")
    folder = RunFolder.create(str(tmp_path / "run"), "rank")
    rank(source, RankOptions("random"), folder)
    maps = load_saliency(folder.path)
    assert set(maps["rank"]) == {"boat", "plane"}
    heat, mean = maps["rank"]["boat"]
    assert heat.min() >= 0
    assert heat.max() <= 1
    assert mean.dtype == np.uint8
    page = report_run(folder).read_text(encoding="utf-8")
    assert "Where the most spurious images of boat differ" in page


def test_features_have_none(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "rank")
    rank(
        Source(str(miniatures.npz(tmp_path / "two.npz")), device="cpu"),
        RankOptions("random"),
        folder,
    )
    assert not (folder.path / FILE).exists()
    assert load_saliency(folder.path) == {}


def test_any_name_of_a_class_comes_back(tmp_path):
    maps = {
        "rank": {"<b>/../ñ\u202e": (np.ones((2, 2), np.float32), np.zeros((4, 4, 3), np.uint8))}
    }
    save_saliency(tmp_path, maps)
    assert list(load_saliency(tmp_path)["rank"]) == ["<b>/../ñ\u202e"]
