"""The two tables of the protocol (docs/protocol.md) from its rows, every cell with its set-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sebra.debiasing.registry import METHODS, method_class
from sebra_bench.layouts import layout_of
from sebra_bench.paper_tables import NAMES
from sebra_bench.plan import OWN_RANKER, PROTOCOLS
from sebra_bench.protocol import TOLD, best_of, declared
from sebra_bench.rows import Row, read_rows
from sebra_bench.summary import Entry, columns_of, worst_range
from sebra_bench.tables import ABSENT, Table, cell

OURS = ("auto", "stages", "sebra")
HOW = {"finetune": "fine-tuned", "features": "frozen", "scratch": "from scratch"}
_LEVEL = 0.05  # points that a table does not show
_ABSENT = "not run, or this set lacks what they need"
_TITLES = {
    "label-free": "Label-free: no attribute reaches training, selection or tuning",
    "groups": "With validation groups: they choose settings and epochs",
}


def protocol_rows(folder: Path) -> list[Row]:
    """Every judged run of the protocol under a folder."""
    return [
        row
        for file in sorted(folder.rglob("*.jsonl"))
        for row in read_rows(file)
        if row.get("kind") == "model" and "protocol" in row
    ]


def protocol_text(rows: Sequence[Row]) -> str:
    """Both tables as Markdown, data set by data set; empty without rows."""
    parts = []
    for kind in PROTOCOLS:
        own = [r for r in rows if r["protocol"] == kind]
        if own:
            parts.append(f"## {_TITLES[kind]}\n")
            everyone = [e.label for e in entries_of(own)]
            for name, found in by_data(own).items():
                table = _table(name, found)
                here = {line["method"] for line in table.shown}
                without = [f"`{label}`" for label in everyone if label not in here]
                if without:
                    table.remarks.append(f"no row here: {', '.join(without)} ({_ABSENT})")
                parts.append(table.markdown())
    if not parts:
        return ""
    return "\n".join(["# Methods on equal terms\n", _HEAD, *parts])


_HEAD = """By the [protocol](protocol.md), which also says what differs from the paper: as many
settings for every method, chosen on validation, the test split looked at once. Ordered by the
group-balanced average: where a worst group rises and others fall as much, it stays. Mean ± standard
deviation over seeds.
"""


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by data set and kind of training, as tables call them.

    Runs that chose from an earlier list of settings stand apart.
    """
    places = [*NAMES, "sick", "cmnist"]
    found: dict[tuple[int, str, int, bool, int], list[Row]] = {}
    for row in rows:
        data, settings = str(row["data"]), len(row["tuning"]["scores"])
        place = places.index(n) if (n := layout_of(data)) in places else len(places)
        mode = [*HOW].index(row["network"]["mode"])
        found.setdefault((place, data, mode, not of_today(row), -settings), []).append(row)
    titles = {False: "settings", True: "settings of an earlier list"}
    return {
        f"{shown_name(key[1])}, {[*HOW.values()][key[2]]}, {-key[4]} {titles[key[3]]}": found[key]
        for key in sorted(found)
    }


def of_today(row: Row) -> bool:
    """Whether a run chose from the settings that are declared today."""
    return bool(row["tuning"].get("declared") == declared(str(row["network"]["mode"])))


def _table(name: str, rows: Sequence[Row]) -> Table:
    entries = entries_of(rows)
    columns = columns_of(entries)
    first = "balanced_average" if "balanced_average" in columns else "average"
    order = {first: columns.pop(first), **columns}
    order.pop("selection.mean_of_last_epochs", None)
    if first == "average":
        order[first] = "accuracy"
    entries.sort(key=lambda e: -_mean(e, first))
    table = Table(name)
    for entry in entries:
        shown = {
            "method": entry.label,
            "told groups": "yes" if entry.uses_groups else "no",
            "chosen by": ", ".join(dict.fromkeys(_criterion(r) for r in entry.rows)),
            "setting": _setting(entry.rows[0]),
            "seeds": str(len({r["seed"] for r in entry.rows})),
        }
        for key, title in order.items():
            shown[title] = cell(entry.figure(key), None)
            if key == "worst_group" and (between := worst_range(entry)) is not None:
                shown[title] = between
        table.shown.append(shown)
    table.remarks += [*_ahead(entries, first), *dict.fromkeys(_set_up(r) for r in rows)]
    return table


def shown_name(data: str) -> str:
    """A data set as tables call it."""
    layout = layout_of(data)
    names = {**NAMES, "sick": "SICK", "cmnist": "Colored MNIST"}
    return data.replace(layout, names.get(layout, layout), 1) if layout else data


def entries_of(rows: Sequence[Row]) -> list[Entry]:
    """One entry for every method, its rows by seed."""
    found: dict[str, Entry] = {}
    for row in sorted(rows, key=lambda r: int(r["seed"])):
        label = str(row["method"])
        if row.get("ranker") not in (None, OWN_RANKER, "peel"):
            label = f"{label} on {row['ranker']}"
        known = found.setdefault(label, Entry(label, _told(row)))
        if all(r["seed"] != row["seed"] for r in known.rows):
            known.rows.append(row)
    return list(found.values())


def _told(row: Mapping[str, object]) -> bool:
    name = str(row["identity"]["method"])  # type: ignore[index]
    if name not in METHODS:
        return False
    kind = method_class(name)
    by_default = bool(kind(kind.config_class()).needs & TOLD)
    return by_default and not row.get("ranker")


def _mean(entry: Entry, key: str) -> float:
    found = entry.figure(key)
    return float("-inf") if found is None else float(found["mean"])


def _criterion(row: Row) -> str:
    return str(row["selection"].get("criterion", ABSENT))


def _setting(row: Row) -> str:
    """Which of the declared settings was taken."""
    scores = row["tuning"]["scores"]
    return f"{best_of(scores) + 1} of {len(scores)}"


def _ahead(entries: Sequence[Entry], key: str) -> list[str]:
    """Who is first among those that are not told the groups, and where ours is."""
    free = [e for e in entries if not e.uses_groups]
    ours = next((e for e in free if e.label in OURS), None)
    if not free or ours is None:
        return []
    return [*_first(free, ours, key), *_against_told(entries, ours, key)]


def _against_told(entries: Sequence[Entry], ours: Entry, key: str) -> list[str]:
    told = next((e for e in entries if e.uses_groups), None)
    if told is None:
        return []
    ahead = _mean(ours, key) - _mean(told, key)
    where = "level" if abs(ahead) < _LEVEL else f"{ahead:+.1f} points"
    return [
        f"our best, `{ours.label}`, against the best that is told groups, `{told.label}`: {where}"
    ]


def _first(free: Sequence[Entry], ours: Entry, key: str) -> list[str]:
    behind = _mean(free[0], key) - _mean(ours, key)
    if behind < _LEVEL:
        level = [f"`{e.label}`" for e in free if _mean(free[0], key) - _mean(e, key) < _LEVEL]
        others = f" (level: {', '.join(level)})" if len(level) > 1 else ""
        return [f"first without being told groups: `{ours.label}`, which is ours{others}"]
    return [
        f"first without being told groups: `{free[0].label}`; our best, `{ours.label}`, is "
        f"{behind:.1f} points behind"
    ]


def _set_up(row: Row) -> str:
    identity, network = row["identity"], row["network"]
    size = f" at {network['image_size']} px" if "image_size" in network else ""
    machine = row["hardware"].get("gpu") or row["hardware"]["cpu"]
    return (
        f"set-up: {network['backbone']}, {network['mode']}{size}, weights "
        f"{str(identity['weights'])[:12]}; data: {identity['content']}; on {machine}, "
        f"commit {row.get('commit', 'not known')}"
    )
