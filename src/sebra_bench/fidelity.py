"""Rows of `study published` as tables: ours beside what the published code gives.

The published implementation was run once on the UrbanCars of `$SEBRA_DATA`, with the same weights
of a ResNet-50; its figures stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sebra_bench.plan import BOTH, GROUPS, tables_of
from sebra_bench.rows import Row, read_rows
from sebra_bench.seeds import mean_std
from sebra_bench.tables import Table

KIND = "published"
EPOCHS = 5  # of debiasing, as in that run
BUCKETS = (2380, 3124, 1515, 275, 293, 292, 111, 10)
THEIRS = {
    "ranking.somers_d_by_bucket": 0.53,
    "groups.id_accuracy": 97.0,
    "groups.gaps.background": -9.0,
    "groups.gaps.object": -20.0,
    "groups.gaps.background+object": -46.0,
    "groups.worst_group": 50.5,
}
_MORE = ("ranking.somers_d", "ranking.plain_tau_b", "ranking.published", "ranking.buckets")
_TITLES = {
    "ranking.somers_d_by_bucket": "Somers' D by bucket",
    "ranking.somers_d": "Somers' D by rank",
    "ranking.plain_tau_b": "plain Kendall tau-b of rank and group",
    "ranking.published": "published score",
    "ranking.buckets": "used buckets",
    "id_accuracy": "I.D. acc.",
    "balanced_average": "group-balanced avg.",
    "worst_group": "worst group",
}
_EVALUATION = ("id_accuracy", "balanced_average", "worst_group")


def figures_of(row: Row) -> dict[str, float]:
    """Every figure of a row by its key."""
    ranking = row["ranking"]
    keys = ("ranking.somers_d_by_bucket", *_MORE)
    out = {key: ranking.get(key.removeprefix("ranking.")) for key in keys}
    for kind in tables_of(BOTH):
        out |= {f"{kind}.{k}": row[kind].get(k) for k in _EVALUATION}
        out |= {f"{kind}.gaps.{k}": v for k, v in row[kind].get("gaps", {}).items()}
    return {k: float(v) for k, v in out.items() if v is not None}


def figures_table(name: str, rows: Sequence[Row]) -> Table:
    """Ours over seeds with the standard error of the mean, theirs, and whether the two agree."""
    table = Table(f"{name}: the published settings")
    for key, found in mean_std([figures_of(row) for row in rows]).items():
        digits = 2 if key.startswith("ranking.") and key != "ranking.buckets" else 1
        error = found["std"] / found["n"] ** 0.5
        theirs = THEIRS.get(key) if name == "urbancars" else None
        shown = {
            "figure": _title(key),
            "ours": f"{found['mean']:.{digits}f} ± {error:.{digits}f}",
            "published code": "–" if theirs is None else f"{theirs:.{digits}f}",
            "within two standard errors": "–",
        }
        if theirs is not None:
            # Their figures are rounded; half a digit is no difference.
            reach = 2 * error + (0.005 if digits == 2 else 0.5)
            agree = abs(found["mean"] - theirs) <= reach
            shown["within two standard errors"] = "yes" if agree else "no"
        table.shown.append(shown)
        table.figures.append({"figure": _title(key), "ours": found, "published_code": theirs})
    table.remarks += [
        f"± is the standard error of the mean over {len(rows)} seeds; the published code was run "
        "once, so its own spread is not known",
        f"{EPOCHS} epochs of debiasing; chosen by: what picked the epoch on validation",
        f"I.D. acc. and worst group by seed, chosen by validation groups: {_by_seed(rows)}; where "
        "the standard error is wide, a yes says little",
    ]
    return table


def _by_seed(rows: Sequence[Row]) -> str:
    each = [(r[GROUPS].get("id_accuracy"), r[GROUPS].get("worst_group")) for r in rows]
    return ", ".join(f"{a:.1f} / {w:.1f}" for a, w in each if a is not None and w is not None)


def _title(key: str) -> str:
    if key in _TITLES:
        return _TITLES[key]
    kind, _, figure = key.partition(".")
    name = _TITLES.get(figure, f"{figure.removeprefix('gaps.')} gap")
    return f"{name}, chosen by {'validation groups' if kind == GROUPS else 'class'}"


def buckets_table(rows: Sequence[Row]) -> Table:
    """How many samples each bucket has."""
    table = Table("Samples by bucket")
    given = [("published code", list(BUCKETS))] if rows[0]["data"] == "urbancars" else []
    given += [(f"ours, seed {row['seed']}", row["ranking"]["bucket_sizes"]) for row in rows]
    for name, sizes in given:
        table.shown.append({"run": name, "samples": " / ".join(str(n) for n in sizes)})
        table.figures.append({"run": name, "samples": sizes})
    return table


def fidelity_text(folder: Path) -> str:
    """What rows of the study under a folder say, as Markdown; empty without rows."""
    rows = [
        row
        for file in sorted(folder.rglob("*.jsonl"))
        for row in read_rows(file)
        if row.get("kind") == KIND
    ]
    parts = []
    for data in dict.fromkeys(str(row["data"]) for row in rows):
        own = [row for row in rows if row["data"] == data]
        table = figures_table(data, own)
        network, identity = own[0]["network"], own[0]["identity"]
        table.remarks.append(
            f"set-up: {network['backbone']} at {network['image_size']} px, weights "
            f"{identity['weights'][:12]}, preset {own[0]['preset']}; data: {identity['content']}; "
            f"commit {own[0].get('commit', 'not known')}"
        )
        parts += [table.markdown(), buckets_table(own).markdown()]
    return (
        "\n".join(["# The published settings beside the published code\n", *parts]) if parts else ""
    )
