"""Rows of figures as Markdown, CSV or LaTeX text.

A cell is a number, a text, a flag, None (empty), or `{mean, std, n}` over several runs.
Columns are those of the rows in order of appearance unless they are named.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

Rows = Sequence[Mapping[str, Any]]

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
LATEX_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "\n": " ",
        "\r": " ",
    }
)


def markdown(rows: Rows, columns: Sequence[str] | None = None, digits: int = 1) -> str:
    """A Markdown table, columns of numbers to the right."""
    names = _columns(rows, columns)
    if not names:
        return ""
    rules = ["---:" if _numeric(rows, name) else "---" for name in names]
    lines = [[_markdown_text(name) for name in names], rules]
    lines += [[_markdown_text(_plain(row.get(name), digits)) for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(rows: Rows, columns: Sequence[str] | None = None, digits: int = 1) -> str:
    r"""A `tabular` with the rules of `booktabs` (needs `\usepackage{booktabs}`)."""
    names = _columns(rows, columns)
    if not names:
        return ""
    layout = "".join("r" if _numeric(rows, name) else "l" for name in names)
    body = [[_latex_cell(row.get(name), digits) for name in names] for row in rows]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            " & ".join(_latex_text(name) for name in names) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def csv_text(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """Comma-separated values with a header, numbers at full precision.

    `{mean, std, n}` spreads over three columns. A text that a spreadsheet would run as a formula
    gets a leading apostrophe.
    """
    names = _columns(rows, columns)
    spread = {name for name in names if any(_is_spread(row.get(name)) for row in rows)}
    header: list[str] = []
    for name in names:
        header += [f"{name}_{part}" for part in ("mean", "std", "n")] if name in spread else [name]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_csv_cell(name) for name in header])
    for row in rows:
        line: list[Any] = []
        for name in names:
            line += _spread(row.get(name)) if name in spread else [row.get(name)]
        writer.writerow([_csv_cell(cell) for cell in line])
    return out.getvalue()


def _columns(rows: Rows, columns: Sequence[str] | None) -> list[str]:
    if columns is not None:
        return list(columns)
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_spread(value: Any) -> bool:
    return isinstance(value, Mapping) and "mean" in value and "std" in value


def _numeric(rows: Rows, name: str) -> bool:
    cells = [row[name] for row in rows if row.get(name) is not None]
    return bool(cells) and all(_is_number(c) or _is_spread(c) for c in cells)


def _spread(value: Any) -> list[Any]:
    if _is_spread(value):
        return [value["mean"], value["std"], value.get("n")]
    return [value, None, None]


def _number(value: Any, digits: int) -> str:
    if isinstance(value, Integral):
        return str(int(value))
    # Adding zero turns the -0.0 of a rounded small negative number into 0.0.
    return f"{round(float(value), digits) + 0.0:.{digits}f}"


def _plain(value: Any, digits: int) -> str:
    if _is_spread(value):
        mean, std = _plain(value["mean"], digits), _plain(value["std"], digits)
        return f"{mean} ± {std}" if value.get("n", 2) > 1 else mean
    if value is None or (_is_number(value) and math.isnan(value)):
        return ""
    if _is_number(value):
        return _number(value, digits)
    if _is_flag(value):
        return "yes" if value else "no"
    return str(value)


def _markdown_text(text: str) -> str:
    one_line = " ".join(text.splitlines())
    return one_line.replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<")


def _latex_text(text: str) -> str:
    return text.translate(LATEX_ESCAPES)


def _latex_cell(value: Any, digits: int) -> str:
    text = _plain(value, digits)
    if text and (_is_number(value) or _is_spread(value)):
        formula = text.replace("±", r"\pm")
        return f"${formula}$"
    return _latex_text(text)


def _reads_as_number(text: str) -> bool:
    """A plain number is no formula, whatever sign it begins with."""
    return re.fullmatch(r"[+-]?\d+(\.\d+)?", text) is not None


def _csv_cell(value: Any) -> Any:
    if value is None or (_is_number(value) and math.isnan(value)):
        return ""
    if _is_number(value):
        return int(value) if isinstance(value, Integral) else float(value)
    text = ("true" if value else "false") if _is_flag(value) else str(value)
    guarded = f"'{text}" if text.startswith(FORMULA_STARTS) and not _reads_as_number(text) else text
    # The csv module leaves a lone carriage return unquoted, and readers take it for a new row.
    return guarded.replace("\r\n", "\n").replace("\r", "\n")
