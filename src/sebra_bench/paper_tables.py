"""The paper's Tables 1 to 6: its rows and columns, our figures, the paper's and the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sebra_bench.paper import UNVERIFIED, Paper
from sebra_bench.results import Results
from sebra_bench.seeds import mean_std
from sebra_bench.summary import Entry
from sebra_bench.tables import Table, cell

NAMES = {
    "urbancars": "UrbanCars",
    "celeba": "CelebA",
    "bar": "BAR",
    "imagenet": "ImageNet-1K",
    "multinli": "MultiNLI",
}
METHODS = {
    "groupdro": "Group DRO",
    "lle": "LLE",
    "erm": "ERM",
    "lff": "LfF",
    "jtt": "JTT",
    "debian": "Debian",
    "dfr": "DFR",
    "sebra": "Sebra",
}
RANKERS = {
    "random": "random order",
    "erm": "ERM",
    "neurons": "Spuriosity Rankings",
    "sebra": "Sebra",
}
ABLATION = {"erm": "neither (ERM)", "sebra[use_u=false]": "v", "sebra": "v and u (Sebra)"}
PHASES = {
    "rank": "Sebra, ranking",
    "debias": "Sebra, contrastive debiasing",
    "erm": "ERM",
}


@dataclass(frozen=True)
class Column:
    """One column: whose figure, which one, and what stands over it."""

    layout: str
    key: str
    title: str


@dataclass(frozen=True)
class Form:
    """One of the paper's tables: its lines (labels with their names) and columns."""

    title: str
    lead: str
    lines: Mapping[str, str]
    columns: tuple[Column, ...]
    source: str = "methods"  # where the paper's figures stand: methods, rankings or ablation
    digits: int = 1


def _columns(layout: str, *keys: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(Column(layout, key, f"{NAMES[layout]}: {title}") for key, title in keys)


_MAIN = (("id_accuracy", "I.D. acc."), ("worst_group", "worst group"), ("average_gap", "avg. gap"))
_BAR = _columns("bar", ("average", "test acc."))
FORMS = (
    Form(
        "Table 1: quality of the rankings",
        "ranking",
        RANKERS,
        (
            *_columns("urbancars", ("ranking.published", "published score")),
            *_columns("celeba", ("ranking.published", "published score")),
            *_columns("bar", ("ranking.pd", "PD")),
        ),
        "rankings",
        2,
    ),
    Form(
        "Table 2, first part: debiasing on UrbanCars, CelebA and BAR",
        "method",
        {k: v for k, v in METHODS.items() if k != "lle"},
        (*_columns("urbancars", *_MAIN), *_columns("celeba", *_MAIN), *_BAR),
    ),
    Form(
        "Table 2, second part: debiasing on ImageNet-1K and MultiNLI",
        "method",
        {k: v for k, v in METHODS.items() if k not in ("groupdro", "dfr")},
        (
            *_columns(
                "imagenet",
                ("id_accuracy", "I.D. acc."),
                ("gaps.IN-W", "IN-W gap"),
                ("gaps.IN-9", "IN-9 gap"),
                ("gaps.IN-R", "IN-R gap"),
                ("gaps.Carton", "Carton gap"),
            ),
            *_columns("multinli", ("worst_group", "worst group")),
        ),
        digits=2,
    ),
    Form(
        "Table 3: ablation of the ranking objective",
        "parts",
        ABLATION,
        _columns(
            "urbancars", ("ranking.published", "published score"), ("ranking.somers_d", "Somers' D")
        ),
        "ablation",
        2,
    ),
    Form(
        "Table 4: gaps on UrbanCars",
        "method",
        {k: v for k, v in METHODS.items() if k != "lle"},
        _columns(
            "urbancars",
            ("id_accuracy", "I.D. acc."),
            ("gaps.background", "BG gap"),
            ("gaps.object", "CoObj gap"),
            ("gaps.background+object", "BG+CoObj gap"),
        ),
    ),
    Form(
        "Table 5: gaps on CelebA, accuracy on BAR",
        "method",
        {k: v for k, v in METHODS.items() if k != "lle"},
        (
            *_columns(
                "celeba",
                ("id_accuracy", "I.D. acc."),
                ("gaps.Male", "Gender gap"),
                ("gaps.Young", "Age gap"),
                ("gaps.Male+Young", "Gender+Age gap"),
            ),
            *_BAR,
        ),
    ),
)


def by_layout(results: Sequence[Results]) -> dict[str, Results]:
    """The results that stand for each of the paper's data sets; variants together come last."""
    return {r.layout: r for r in results if r.layout in NAMES}


def paper_tables(found: Mapping[str, Results], everything: bool = False) -> list[Table]:
    """The paper's tables, with the columns of the data sets found and lines that ours or the
    paper's figures fill; `everything` keeps what only the paper has."""
    tables = [table for form in FORMS if (table := _table(form, found, everything)) is not None]
    times = _times(found.get("urbancars"), everything)
    return [*tables, *([] if times is None else [times])]


def _table(form: Form, found: Mapping[str, Results], everything: bool) -> Table | None:
    columns = [c for c in form.columns if everything or c.layout in found]
    entries = {c.layout: _entries(form, found.get(c.layout)) for c in columns}
    measured = any(
        entry.figure(c.key) is not None for c in columns for entry in entries[c.layout].values()
    )
    if not columns or not (measured or everything):
        return None
    table = Table(form.title)
    marks: dict[str, None] = {}
    for label, name in form.lines.items():
        shown, figures = {form.lead: name}, {form.lead: name}
        for c in columns:
            entry = entries[c.layout].get(label)
            ours = None if entry is None else entry.figure(c.key)
            theirs, doubt = _theirs(form, c, label)
            shown[c.title] = cell(ours, theirs, form.digits, "*" if doubt and theirs else "")
            figures |= _numbers(c.title, ours, theirs)
            if doubt and theirs:
                marks[doubt] = None
        table.shown.append(shown)
        table.figures.append(figures)
    table.remarks.append("in brackets: the paper's figure, and ours minus it")
    table.remarks += [f"* {doubt}" for doubt in marks]
    return table


def _entries(form: Form, results: Results | None) -> dict[str, Entry]:
    if results is None:
        return {}
    entries = results.models if form.source == "methods" else results.rankings
    return {entry.label: entry for entry in entries}


def _theirs(form: Form, c: Column, label: str) -> tuple[dict[str, float] | None, str]:
    """The paper's figure, and why it cannot be compared as it is (empty where it can)."""
    paper = Paper(c.layout)
    if form.source == "methods":
        return paper.method(label).get(c.key), paper.doubtful.get(c.key, "")
    figure = paper.ranking(label, form.source).get(c.key.removeprefix("ranking."))
    doubt = (
        f"{UNVERIFIED}: under the measure that gives the paper's figure for Sebra a random order "
        "scores about 0.23"
    )
    return figure, doubt if paper.unverified(label, form.source) else ""


def _numbers(title: str, ours: Any, theirs: Mapping[str, float] | None) -> dict[str, Any]:
    out = {title: ours, f"{title}, paper": None if theirs is None else theirs["mean"]}
    both = ours is not None and theirs is not None
    return {**out, f"{title}, difference": ours["mean"] - theirs["mean"] if both else None}  # type: ignore[index]


def _times(results: Results | None, everything: bool) -> Table | None:
    """Table 6. Hardware differs, so the ratio to ERM is what can be compared."""
    paper = Paper("urbancars")
    seconds = {} if results is None else _seconds(results)
    if not everything and len(seconds) < len(PHASES):
        return None
    table = Table("Table 6: time on UrbanCars")
    for phase, title in PHASES.items():
        ours, minutes, base = seconds.get(phase), paper.minutes(phase), paper.minutes("erm")
        assert minutes is not None
        assert base is not None
        ratio = None
        if ours is not None and "erm" in seconds:
            ratio = {"mean": ours["mean"] / seconds["erm"]["mean"], "std": 0.0, "n": 1}
        theirs = {"mean": minutes / base}
        table.shown.append(
            {
                "phase": title,
                "seconds": cell(ours, None),
                "paper, minutes": f"{minutes:g}",
                "times ERM": cell(ratio, theirs, 2),
            }
        )
        figures = {"phase": title, "seconds": ours, "paper_minutes": minutes}
        table.figures.append({**figures, **_numbers("times ERM", ratio, theirs)})
    table.remarks.append(
        "in brackets: the paper's (one RTX 3090, ResNet-50), and ours minus it; data read before; "
        "runs that shared the machine are left out"
    )
    return table


def _seconds(results: Results) -> dict[str, Any]:
    """Mean seconds of each phase, over rows of runs that had the machine to themselves."""
    models = {entry.label: _alone(entry.rows) for entry in results.models}
    rankings = {entry.label: _alone(entry.rows) for entry in results.rankings}
    rows = {
        "rank": (rankings.get("sebra", []), "rank"),
        "debias": (models.get("sebra", []), "debias"),
        "erm": (models.get("erm", []), "debias"),
    }
    return {
        phase: mean_std([{"x": row["seconds"][part]} for row in found])["x"]
        for phase, (found, part) in rows.items()
        if found
    }


def _alone(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row.get("runs_together", 1) == 1]
