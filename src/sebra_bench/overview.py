"""The first table of the page of results: plain training, the paper's method, ours, baselines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sebra_bench.collected import Section, weight
from sebra_bench.paper import Paper
from sebra_bench.paper_tables import METHODS, NAMES
from sebra_bench.summary import Entry
from sebra_bench.tables import ABSENT, Table

PLAIN, PAPERS = "erm", "sebra"
OURS = ("auto", "auto on peel", "stages on peel")  # the first of them that was run
_GROUPS = "worst validation group"
_NOTES = (
    "a cell: worst test group, ordinary (I.D.) accuracy, runs; where no group is known: accuracy",
    "± is the standard deviation over runs; runs with a setting of their own do not count",
    "baselines: that with the best mean of those run, and so a little flattered",
    "chosen by: what picked the epoch. Validation groups are true groups, which users rarely have",
    "of several experiments the one with the most runs of today's settings stands here",
)


@dataclass(frozen=True)
class _Line:
    """One data set with one network: its entries by label, each of the experiment that stands."""

    data: str
    layout: str | None
    network: str
    entries: dict[str, Entry]

    @property
    def key(self) -> str:
        rows = self.entries[PLAIN].rows
        return "worst_group" if "worst_group" in rows[0]["evaluation"] else "average"

    def best(self, wanted: Callable[[Entry], bool]) -> Entry | None:
        found = [(f["mean"], e) for e in self.entries.values() if wanted(e) and (f := _of(e, self))]
        return max(found, key=lambda pair: pair[0])[1] if found else None


def _of(entry: Entry, line: _Line) -> dict[str, float] | None:
    return entry.figure(line.key)


def overview(sections: Sequence[Section]) -> Table:
    """One line per data set and network with plain training and the paper's method."""
    table = Table("Worst group in percent")
    for line in _lines(sections):
        ours = next((line.entries[label] for label in OURS if label in line.entries), None)
        table.shown.append(
            {
                "data": line.data,
                "network": line.network,
                "plain training": _cell(line.entries[PLAIN], line),
                "paper's method": _cell(line.entries[PAPERS], line),
                "ours": _named(ours, line),
                "best baseline": _named(line.best(_is_baseline), line),
                "told the true groups": _named(line.best(lambda e: e.uses_groups), line),
                "paper: plain, Sebra": _papers(line),
                "chosen by": _chosen_by(line.entries.values()),
            }
        )
    table.remarks += _NOTES
    return table


def _is_baseline(entry: Entry) -> bool:
    ours = entry.label in (PLAIN, PAPERS) or entry.label.split(" ")[0] in ("auto", "stages")
    return not ours and not entry.uses_groups and "[" not in entry.label


def _lines(sections: Sequence[Section]) -> list[_Line]:
    found: dict[tuple[str, str], _Line] = {}
    for section in sections:
        whole = section.whole
        for entry in whole.models:
            network = entry.rows[0]["network"]
            at = _data(whole.data, whole.layout), f"{network['backbone']}, {network['mode']}"
            line = found.setdefault(at, _Line(at[0], whole.layout, at[1], {}))
            known = line.entries.get(entry.label)
            if known is None or weight([entry]) > weight([known]):
                line.entries[entry.label] = entry
    lines = [line for line in found.values() if {PLAIN, PAPERS} <= line.entries.keys()]
    return sorted(lines, key=lambda line: (line.network.endswith("features"), _place(line.layout)))


def _place(layout: str | None) -> int:
    names = list(NAMES)
    return names.index(layout) if layout in names else len(names)


def _data(data: str, layout: str | None) -> str:
    name = re.sub(r", (\d+) variants together", ", several splits", data)
    return name.replace(layout, NAMES.get(layout, layout), 1) if layout else name


def _cell(entry: Entry, line: _Line) -> str:
    figure = _of(entry, line)
    if figure is None:
        return ABSENT
    text = f"{figure['mean']:.1f}"
    if figure["n"] > 1:
        text += f" ± {figure['std']:.1f}"
    ordinary = entry.figure("id_accuracy") if line.key == "worst_group" else None
    parts = [f"I.D. {ordinary['mean']:.1f}"] if ordinary else []
    return f"{text} ({', '.join([*parts, str(len(entry.rows))])})"


def _named(entry: Entry | None, line: _Line) -> str:
    if entry is None:
        return ABSENT
    return f"{METHODS.get(entry.label, entry.label)}: {_cell(entry, line)}"


def _papers(line: _Line) -> str:
    paper = Paper(None if line.network.endswith("features") else line.layout)
    both = [paper.method(label).get(line.key) for label in (PLAIN, PAPERS)]
    return ", ".join(ABSENT if f is None else f"{f['mean']:.1f}" for f in both)


def _chosen_by(entries: Iterable[Entry]) -> str:
    said = {str(r["selection"].get("criterion", "")) for e in entries for r in e.rows}
    if said == {_GROUPS}:
        return "validation groups"
    return "no groups" if _GROUPS not in said else "either"
