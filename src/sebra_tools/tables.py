"""Rows of figures as CSV, Markdown or LaTeX text.

Columns are those of the rows in order of appearance unless they are named.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_text(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """Comma-separated values with a header, numbers at full precision, nothing for a missing one.

    A text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    names = _names(rows) if columns is None else columns
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def markdown(rows: Rows) -> str:
    """A Markdown table."""
    names = _names(rows)
    lines = [names, ["---"] * len(names), *([_shown(row[name]) for name in names] for row in rows)]
    escaped = ([" ".join(c.splitlines()).replace("|", "\\|") for c in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def latex(rows: Rows) -> str:
    r"""A `tabular` with the rules of `booktabs` (needs `\usepackage{booktabs}`)."""
    import pandas as pd

    return pd.DataFrame(rows).to_latex(index=False, escape=True, float_format="%.1f")


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _shown(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
    formula = value.startswith(FORMULA_STARTS) and not re.fullmatch(r"[+-]?\d+(\.\d+)?", value)
    guarded = f"'{value}" if formula else value
    # The csv module leaves a lone carriage return unquoted, and readers take it for a new row.
    return guarded.replace("\r\n", "\n").replace("\r", "\n")
