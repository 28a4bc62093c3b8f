"""Every quick fault is handled; the table of the documentation names every fault there is."""

from __future__ import annotations

import re

import pytest

from faults import datasets, long_runs, pictures
from faults.case import FAULTS, Place
from faults.table import cell

REGISTERED = (pictures, datasets, long_runs)  # by importing them


@pytest.mark.parametrize("name", [f.name for f in FAULTS.values() if not f.slow])
def test_fault(name, tmp_path, monkeypatch):
    assert FAULTS[name].run(Place(tmp_path, monkeypatch))


def test_the_page_has_a_row_for_every_fault(repo_root):
    page = (repo_root / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", page, re.MULTILINE)
    wanted = {(cell(f.name), cell(f.expected)) for f in FAULTS.values()}
    assert wanted <= set(rows)
    assert len(wanted) >= 40
