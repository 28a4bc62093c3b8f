"""Tables as text, safe in each format."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from sebra_bench.text_tables import csv_text, latex, markdown

ROWS = [
    {"method": "erm", "gap": -15.25, "n": 3, "small": False},
    {"method": "a|b_<i>", "gap": {"mean": -6.54, "std": 1.38, "n": 4}, "n": None, "small": True},
]


def test_markdown_aligns_numbers_and_escapes_bars():
    lines = markdown(ROWS).splitlines()
    assert lines[0] == "| method | gap | n | small |"
    assert lines[1] == "| --- | ---: | ---: | --- |"
    assert lines[2] == "| erm | -15.2 | 3 | no |"
    assert lines[3] == r"| a\|b_\<i> | -6.5 ± 1.4 |  | yes |"


def test_named_columns_only_in_the_order_given():
    assert markdown(ROWS, ["n", "method"]).startswith("| n | method |\n")
    assert csv_text(ROWS, ["n", "method"]).splitlines()[1] == "3,erm"
    assert markdown([]) == latex([]) == ""


def test_a_line_break_cannot_end_a_row():
    assert len(markdown([{"a": "x\ny"}]).splitlines()) == 3


def test_small_negative_numbers_round_to_plain_zero():
    assert "| 0.0 |" in markdown([{"a": -0.01}])


def test_a_single_run_shows_no_deviation():
    assert "±" not in markdown([{"a": {"mean": 1.0, "std": 0.0, "n": 1}}])


def test_latex_is_a_booktabs_tabular():
    text = latex(ROWS)
    assert text.startswith("\\begin{tabular}{lrrl}\n\\toprule\n")
    assert r"$-6.5 \pm 1.4$" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


@pytest.mark.parametrize(
    ("raw", "escaped"),
    [
        ("50 % & more_", r"50 \% \& more\_"),
        ("#1 {$x$}", r"\#1 \{\$x\$\}"),
        ("a\\b", r"a\textbackslash{}b"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"),
        ("<&>", r"\textless{}\&\textgreater{}"),
        ("two\nlines", "two lines"),
    ],
)
def test_latex_escapes_text_in_cells_and_headers(raw, escaped):
    assert f"\n{escaped} \\\\\n" in latex([{"x": raw}])
    assert f"\n{escaped} \\\\\n" in latex([{raw: 1}])


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_text_that_looks_like_a_formula_is_disarmed(start):
    cell = f"{start}cmd()"
    header, row = csv.reader(io.StringIO(csv_text([{cell: cell}]), newline=""))
    assert header == row == ["'" + cell.replace("\r", "\n")]


def test_csv_numbers_stay_numbers_at_full_precision():
    row = {"a": -1 / 3, "b": np.float32(-2.5), "c": np.int64(-4), "d": "-4", "e": float("nan")}
    assert csv_text([row]).splitlines()[1] == "-0.3333333333333333,-2.5,-4,-4,"


def test_csv_quotes_and_spreads_mean_and_deviation():
    lines = list(csv.reader(io.StringIO(csv_text([*ROWS, {"method": 'say "a,b"\n'}]))))
    assert lines[0] == ["method", "gap_mean", "gap_std", "gap_n", "n", "small"]
    assert lines[1] == ["erm", "-15.25", "", "", "3", "false"]
    assert lines[2][1:4] == ["-6.54", "1.38", "4"]
    assert lines[3][0] == 'say "a,b"\n'
