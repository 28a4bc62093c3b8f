"""Tables as text, safe in each format."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from sebra_tools.tables import csv_text, latex, markdown

ROWS = [{"group": "a|b_<i>", "n": 3, "accuracy": 61.25}, {"group": "c", "n": 40, "accuracy": 9.0}]


def test_markdown_escapes_bars_and_keeps_rows_on_one_line():
    assert markdown(ROWS).splitlines()[2:] == [r"| a\|b_<i> | 3 | 61.2 |", "| c | 40 | 9.0 |"]
    assert len(markdown([{"a": "x\ny"}]).splitlines()) == 3


def test_latex_is_a_booktabs_tabular_with_escaped_text():
    text = latex(ROWS)
    assert "\\toprule" in text
    assert "a|b\\_<i> & 3 & 61.2 \\\\" in text


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_text_that_looks_like_a_formula_is_disarmed(start):
    cell = f"{start}cmd()"
    header, row = csv.reader(io.StringIO(csv_text([{cell: cell}]), newline=""))
    assert header == row == ["'" + cell.replace("\r", "\n")]


def test_csv_numbers_stay_numbers_at_full_precision():
    row = {"a": -1 / 3, "b": np.float32(-2.5), "c": np.int64(-4), "d": "-4", "e": float("nan")}
    assert csv_text([row]).splitlines()[1] == "-0.3333333333333333,-2.5,-4,-4,"


def test_csv_has_named_columns_only_and_quotes_what_needs_it():
    lines = list(csv.reader(io.StringIO(csv_text([{"n": 3, "x": 'say "a,b"\n'}], ["x", "gone"]))))
    assert lines == [["x", "gone"], ['say "a,b"\n', ""]]
