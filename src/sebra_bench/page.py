"""`sebra bench results`: what rows under a folder say, on one page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sebra_bench import text_tables
from sebra_bench.ablations import ablations
from sebra_bench.collected import Section, collect, weight
from sebra_bench.fidelity import fidelity_text
from sebra_bench.overview import overview
from sebra_bench.paper_tables import NAMES, paper_tables
from sebra_bench.protocol_tables import protocol_rows, protocol_text
from sebra_bench.results import Results, result_tables
from sebra_bench.rows import Row
from sebra_bench.summary import Entry

_SET_UP = """What differs from the paper where its figures stand beside ours: on UrbanCars
ResNet-18 instead of ResNet-50, on CelebA 1,656 training pictures at 96 pixels instead of the whole
set. The paper's worst-group column does not follow from its own gaps (plain training on UrbanCars:
97.6 - 69.2 = 28.4, printed 33.2), so gaps are the better comparison.
"""


_EARLIER = """# Earlier experiments

These were measured before the protocol: settings of some methods were compared on the test split,
epochs were chosen by true validation groups where the table says so, and a method may have had
settings of its own.
"""


def results_page(folder: Path, command: str, everything: bool = False) -> tuple[str, int]:
    """The page as Markdown, and how many rows it stands on. `command` is what wrote it.

    everything: with the tables of every experiment after the page itself.
    """
    sections = collect(folder)
    equal = protocol_rows(folder)
    count = sum(len(section.rows) for section in sections) + len(equal)
    chosen = _chosen(sections)
    ablation = ablations(sections)
    standing = {layout: results for layout, (results, _) in chosen.items()}
    parts = [
        f"# Results\n\nMade from {count} runs under `{folder.as_posix()}` by `{command}`; "
        "not to be edited.\n",
        *([protocol_text(equal)] if equal else []),
        *filter(None, [fidelity_text(folder)]),
        *([_EARLIER] if equal else []),
        overview(sections).markdown(),
        _SET_UP,
        _papers_head({k: where for k, (_, where) in chosen.items()}),
        *(table.markdown() for table in paper_tables(standing, everything=True)),
        *([] if ablation is None else [ablation.markdown()]),
        _experiments(sections),
    ]
    if everything:
        for section in sections:
            parts.append(f"## {section.where}\n\n{_when(section.rows)}\n")
            parts += [table.markdown() for table in result_tables(section.results)]
    return "\n".join(parts), count


def _chosen(sections: Sequence[Section]) -> dict[str, tuple[Results, str]]:
    """For each of the paper's data sets, the results that stand beside its figures."""
    out = {}
    for layout in NAMES:
        own = [s for s in sections if s.whole.layout == layout]
        if not own:
            continue
        models = max(own, key=lambda s: weight(s.whole.models))
        rankings: dict[str, tuple[tuple[Any, ...], Entry, str]] = {}
        for section in own:
            for entry in section.whole.rankings:
                candidate = (weight([entry]), entry, section.where)
                if entry.label not in rankings or candidate[0] > rankings[entry.label][0]:
                    rankings[entry.label] = candidate
        entries = [entry for _, entry, _ in rankings.values()]
        places = dict.fromkeys([models.where, *(where for _, _, where in rankings.values())])
        chosen = Results(models.whole.data, layout, models.whole.models, entries)
        out[layout] = chosen, ", ".join(places)
    return out


def _papers_head(chosen: dict[str, str]) -> str:
    lines = [
        "## The paper's tables",
        "",
        "Mean ± standard deviation over runs. A dash: not measured here. Of several experiments on "
        "a data set, the fine-tuned one with the most runs of today's presets:",
        "",
        *(f"- {NAMES[layout]}: {where}" for layout, where in chosen.items()),
        "",
    ]
    return "\n".join(lines)


def _experiments(sections: Sequence[Section]) -> str:
    rows = [
        {
            "experiment": section.where,
            "data": section.whole.data,
            "network": ", ".join(dict.fromkeys(_network(row) for row in section.rows)),
            "runs": len(section.rows),
            "methods and rankings": ", ".join(
                dict.fromkeys(re.sub(r"\[.*?\]", "", e.label) for e in _entries(section))
            ),
        }
        for section in sections
    ]
    return f"## Every experiment\n\n{text_tables.markdown(rows)}"


def _entries(section: Section) -> list[Entry]:
    return section.whole.models or section.whole.rankings


def _network(row: Row) -> str:
    return f"{row['network']['backbone'].rpartition('/')[2]}, {row['network']['mode']}"


def _when(rows: Sequence[Row]) -> str:
    days = sorted({str(row["date"])[:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{len(rows)} rows, {span}."
