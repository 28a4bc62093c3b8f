"""Table 3 wherever it was run: when the paper's ablation reproduces, and when it does not."""

from __future__ import annotations

from collections.abc import Sequence

from sebra_bench.collected import Section
from sebra_bench.protocol_tables import shown_name
from sebra_bench.summary import Entry
from sebra_bench.tables import ABSENT, Table

_COLUMNS = {
    "random": "random order",
    "erm[by=last]": "ERM, by its last epoch",
    "erm": "ERM, by when it learns",
    "sebra[use_u=false]": "v",
    "sebra": "v and u (Sebra)",
    "neurons": "neurons",
}


def ablations(sections: Sequence[Section]) -> Table | None:
    """One line per experiment that ranked by plain training and by the paper's method."""
    table = Table("Tables 1 and 3 on every set, network and experiment")
    for section in sections:
        found = {e.label: e for e in section.whole.rankings if e.label in _COLUMNS}
        if not {"erm", "sebra"} <= found.keys():
            continue
        row = found["sebra"].rows[0]
        network = row["network"]
        table.shown.append(
            {
                "data": shown_name(section.whole.data),
                "network": f"{network['backbone'].rpartition('/')[2]}, {network['mode']}",
                "preset": str(row["preset"]),
                **{title: _cell(found.get(label)) for label, title in _COLUMNS.items()},
            }
        )
    table.remarks += [
        "a cell: Somers' D / plain tau-b / published score, mean over seeds; PD where no group is "
        "known",
        "the paper's ERM (0.12) does not reproduce where plain training is ranked by the epoch in "
        "which it learns a sample: that order knows the stronger shortcut as well as Sebra's does. "
        "Nor does it by the last epoch of a linear layer, which learns little by heart; by that of "
        "a fine-tuned network it was not measured",
    ]
    return table if table.shown else None


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ABSENT
    keys = ("somers_d", "plain_tau_b", "published")
    figures = [entry.figure(f"ranking.{key}") for key in keys]
    if figures[0] is None:
        pd = entry.figure("ranking.pd")
        return ABSENT if pd is None else f"PD {pd['mean']:.1f}"
    return " / ".join(ABSENT if f is None else f"{f['mean']:.2f}" for f in figures)
