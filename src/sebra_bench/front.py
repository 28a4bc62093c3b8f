"""The table of the front page, from the rows of the protocol; written between two marks."""

from __future__ import annotations

from collections.abc import Sequence

from sebra.errors import UsageError
from sebra_bench import text_tables
from sebra_bench.plan import GROUPS, LABEL_FREE
from sebra_bench.protocol_tables import HOW, OURS, by_data, entries_of, shown_name
from sebra_bench.rows import Row
from sebra_bench.summary import Entry, worst_range
from sebra_bench.tables import ABSENT

BEGIN, END = "<!-- table of results: written by sebra bench results -->", "<!-- end of table -->"
PLAIN, AUTO = "erm", "auto"


def with_table(page: str, rows: Sequence[Row]) -> str:
    """The page with the table of these rows between its marks."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise UsageError(f"--front: the page needs the lines {BEGIN} and {END}, once each")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{front_table(rows)}\n{END}{rest.split(END)[1]}"


def front_table(rows: Sequence[Row]) -> str:
    """One line per data set: plain training, ours, the best others, and the best told groups."""
    lines = []
    for name, found in _fullest(rows).items():
        free = entries_of([r for r in found if r["protocol"] == LABEL_FREE])
        told = entries_of([r for r in found if r["protocol"] == GROUPS])
        by_label = {e.label: e for e in free}
        if not free:
            continue
        first = max(_mean(e) for e in free)
        lines.append(
            {
                "data": name,
                "plain training": _cell(by_label.get(PLAIN), first),
                "`sebra debias`": _cell(by_label.get(AUTO), first),
                "ours, another `--method`": _best([e for e in free if e.label in OURS[1:]], first),
                "best other method": _best(
                    [e for e in free if e.label not in (PLAIN, *OURS)], first
                ),
                "best that is told the groups": _best([e for e in told if e.uses_groups], None),
                "seeds": _seeds(free),
            }
        )
    return text_tables.markdown(lines).rstrip("\n")


def _fullest(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Of every data set and network the rows that chose from the settings of today, if any did."""
    best: dict[str, list[Row]] = {}
    for found in by_data(rows).values():
        best.setdefault(f"{shown_name(str(found[0]['data']))}, {_network(found[0])}", found)
    return best


def _network(row: Row) -> str:
    network = row["network"]
    size = f" at {network['image_size']} px" if "image_size" in network else ""
    name = network["backbone"].removesuffix("/model").rpartition("/")[2]
    return f"{HOW[network['mode']]} {name}{size}"


def _seeds(entries: Sequence[Entry]) -> str:
    counts = sorted({len(entry.rows) for entry in entries})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _mean(entry: Entry) -> float:
    found = entry.figure("balanced_average" if _has_groups(entry) else "average")
    return float("-inf") if found is None else float(found["mean"])


def _has_groups(entry: Entry) -> bool:
    return entry.figure("worst_group") is not None or worst_range(entry) is not None


def _best(entries: Sequence[Entry], first: float | None) -> str:
    if not entries:
        return ABSENT
    best = max(entries, key=_mean)
    return f"`{best.label}` {_cell(best, first)}"


def _cell(entry: Entry | None, first: float | None) -> str:
    """Worst group / mean over groups / I.D. accuracy, or accuracy; bold where it is the first."""
    if entry is None:
        return ABSENT
    keys = ("worst_group", "balanced_average", "id_accuracy")
    figures = [entry.figure(key) for key in keys]
    if not _has_groups(entry):
        only = entry.figure("average")
        text = ABSENT if only is None else f"{only['mean']:.1f}"
    else:
        worst = worst_range(entry)
        texts = [ABSENT if f is None else f"{f['mean']:.1f}" for f in figures]
        text = " / ".join([texts[0] if worst is None else worst.partition(" (")[0], *texts[1:]])
    return f"**{text}**" if first is not None and _mean(entry) >= first - 0.05 else text
