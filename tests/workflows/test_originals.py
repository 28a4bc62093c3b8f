"""A report knows where the files of its pictures lie, seen from the page."""

from __future__ import annotations

import json
import os
from urllib.parse import unquote

import pandas as pd

import miniatures
from sebra.runs.folder import RunFolder
from sebra.samples.open import open_samples
from sebra.workflows.prepared import Source
from sebra.workflows.rank import RankOptions, rank
from sebra.workflows.report import _originals, report_run


def test_every_id_leads_from_the_page_to_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    miniatures.folder(tmp_path / "my pictures", n=8)
    folder = RunFolder.create("runs/a", "rank", False)
    options = RankOptions("sebra", overrides=("epochs=1",))
    rank(Source("my pictures", device="cpu"), options, folder)
    page = report_run(folder)
    data = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])
    assert data["originals"].startswith("../../my%20pictures/")
    for name in data["columns"]["id"]:
        assert os.path.isfile(page.parent / unquote(data["originals"]) / name)


def test_ids_that_are_no_files_lead_nowhere(tmp_path):
    folder = miniatures.folder(tmp_path / "pictures", n=4)
    paths = sorted(folder.rglob("*.png"))
    table = {"path": paths, "id": range(len(paths)), "label": [p.parent.name for p in paths]}
    pd.DataFrame(table).to_csv(tmp_path / "x.csv", index=False)
    assert _originals(open_samples(str(tmp_path / "x.csv")), tmp_path / "report.html") == ""
    assert _originals(open_samples("demo?n=100"), tmp_path / "report.html") == ""
