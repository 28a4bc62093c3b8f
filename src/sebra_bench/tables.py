"""The benchmark's tables as text: Markdown, CSV and LaTeX, with the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sebra_bench import text_tables
from sebra_bench.paper import UNVERIFIED, Paper
from sebra_bench.summary import (
    RANKING_TITLES,
    Entry,
    columns_of,
    headline_of,
    over_baseline,
    worst_range,
)

ABSENT = "–"


@dataclass
class Table:
    """Rows to read (`shown`, texts) and the same as numbers (`figures`), with remarks."""

    title: str
    shown: list[dict[str, str]] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        remarks = "".join(f"- {remark}\n" for remark in self.remarks)
        return f"### {self.title}\n\n{text_tables.markdown(self.shown)}\n{remarks}"

    def latex(self) -> str:
        comments = "".join(f"% {remark}\n" for remark in self.remarks)
        return f"% {self.title}\n{comments}{text_tables.latex(self.shown)}"


def methods_table(title: str, entries: Sequence[Entry], paper: Paper) -> Table:
    """One line per method: mean ± deviation over the runs, then (the paper's, ours minus it)."""
    columns = columns_of(entries)
    table = Table(title)
    for entry in entries:
        lead = {"method": entry.shown, "labels": "yes" if entry.uses_groups else "no"}
        theirs = paper.method(entry.label)
        doubts = dict.fromkeys(paper.doubtful, "*")
        _add(table, lead, entry, columns, theirs, doubts, digits=1)
        if entry.reason:
            table.remarks.append(f"{entry.shown}: {entry.reason}")
    table.remarks.insert(0, "labels: whether the method is told the true groups")
    if paper and any(paper.method(e.label) for e in entries):
        table.remarks.insert(
            0, f"in brackets: the paper ({paper.source}), and ours minus the paper's"
        )
        table.remarks += [
            f"* {columns[k]}: {why}" for k, why in paper.doubtful.items() if k in columns
        ]
    return table


def rankings_table(
    title: str, entries: Sequence[Entry], paper: Paper, source: str = "rankings"
) -> Table:
    """One line per ranker with the measures of its ranking."""
    keys = [k for k in RANKING_TITLES if any(e.figure(f"ranking.{k}") for e in entries)]
    columns = {f"ranking.{k}": RANKING_TITLES[k] for k in keys}
    table = Table(title)
    doubtful = False
    for entry in entries:
        found = paper.ranking(entry.label, source)
        theirs = {f"ranking.{k}": v for k, v in found.items()}
        marks = dict.fromkeys(theirs, "*") if paper.unverified(entry.label, source) else {}
        doubtful = doubtful or bool(marks)
        _add(table, {"ranking": entry.shown}, entry, columns, theirs, marks, digits=2)
        if entry.reason:
            table.remarks.append(f"{entry.shown}: {entry.reason}")
    if any(paper.ranking(e.label, source) for e in entries):
        table.remarks.insert(0, "in brackets: the paper, and ours minus the paper's")
    if doubtful:
        table.remarks.append(
            f"* {UNVERIFIED}: under the measure that gives the paper's figure for Sebra a random "
            "order scores about 0.23, so the paper's other rows cannot come from it"
        )
    return table


def baseline_table(title: str, entries: Sequence[Entry]) -> Table:
    """Every method minus ERM with its standard error, paired over seeds."""
    table = Table(title)
    columns = columns_of(entries)
    found = over_baseline(entries)
    for label in dict.fromkeys(d.label for d in found):
        shown, figures = {"method": f"{label} − erm"}, {"method": f"{label} - erm"}
        for key in headline_of(entries):
            match = next((d for d in found if d.label == label and d.key == key), None)
            if match is None:
                shown[columns[key]] = ABSENT
                continue
            error = match.standard_error
            text = f"{match.mean:+.1f}" if error is None else f"{match.mean:+.1f} ± {error:.1f}"
            shown[columns[key]] = text
            figures.update({f"{key}_difference": match.mean, f"{key}_standard_error": error})  # type: ignore[dict-item]
        table.shown.append(shown)
        table.figures.append(figures)
    if found:
        table.remarks.append(f"± is the standard error of the mean over {found[0].n} paired runs")
    return table


def _add(
    table: Table,
    lead: Mapping[str, str],
    entry: Entry,
    columns: Mapping[str, str],
    theirs: Mapping[str, Mapping[str, float]],
    marks: Mapping[str, str],
    digits: int,
) -> None:
    shown: dict[str, str] = {**lead, "runs": str(len(entry.rows))}
    figures: dict[str, Any] = {**lead, "runs": len(entry.rows)}
    for key, title in columns.items():
        ours, paper = entry.figure(key), theirs.get(key)
        exact = 0 if key == "ranking.buckets" else digits
        shown[title] = cell(ours, paper, exact, marks.get(key, ""))
        if key == "worst_group" and (between := worst_range(entry)) is not None:
            shown[title], ours = between, None
        name = key.rpartition("ranking.")[2].rpartition("selection.")[2]
        figures[name] = ours
        figures[f"{name}_paper"] = None if paper is None else paper["mean"]
        both = ours is not None and paper is not None
        figures[f"{name}_difference"] = ours["mean"] - paper["mean"] if both else None  # type: ignore[index]
    table.shown.append(shown)
    table.figures.append(figures)


def cell(
    ours: Mapping[str, float] | None,
    paper: Mapping[str, float] | None,
    digits: int = 1,
    mark: str = "",
) -> str:
    """`94.9 ± 0.3 (97.6, -2.7)`: ours, the paper's, the difference; a dash for what is absent."""
    if ours is None:
        text = ABSENT
    else:
        text = f"{ours['mean']:.{digits}f}"
        if ours["n"] > 1:
            text += f" ± {ours['std']:.{digits}f}"
    if paper is None:
        return text
    if ours is None:
        return f"{text} ({paper['mean']:.{digits}f}{mark})"
    difference = ours["mean"] - paper["mean"]
    return f"{text} ({paper['mean']:.{digits}f}{mark}, {difference:+.{digits}f})"
