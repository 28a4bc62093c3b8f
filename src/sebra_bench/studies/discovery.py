"""Shortcuts that no attribute names: what the pictures at the two ends of an order look like.

A figure of the pictures (colour, light or detail, of the whole, the centre or the border) is
called a shortcut where it is typical of a class and the samples with more of it come first. Where
there are attributes, only samples aligned in all of them are looked at: none can be the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.ranking.registry import ranker_class
from sebra.samples.table import ImageArray, Samples, alignment
from sebra.showing.picking import pick
from sebra.showing.ranked import ranked_of
from sebra_bench.plan import Spec, with_shared
from sebra_bench.studies.appearance import FIGURES, Link, links, looks_of
from sebra_bench.studies.common import (
    LINES,
    Study,
    new_figure,
    ranker_settings,
    save_figure,
)
from sebra_bench.tables import ABSENT, Table
from sebra_bench.workbench import Workbench

Array = npt.NDArray[Any]
RANKERS = (Spec("sebra", "sebra"), Spec("peel", "peel"))
MOST_PICTURES = 4000  # per class
MOST_SHOWN = 24  # lines of the table
MOST_CLASSES = 10  # in the drawings
PICTURES = 12  # from each end in the gallery
SIDE, GAP = 96, 10
SLICES = 10


@dataclass(frozen=True)
class Looked:
    """The training samples looked at, and what their pictures are like."""

    part: Samples
    content: ImageArray
    rows: Array
    looks: Array
    among: str

    @property
    def labels(self) -> Array:
        return self.part.labels[self.rows]


def discovery(bench: Workbench) -> Study:
    """Plain figures of the pictures against the ranking, and against every stage of peeling."""
    part, content = bench.prepared._read("train")
    if not isinstance(content, ImageArray):
        raise UsageError("study discovery: needs pictures; this data has none")
    orders, tables = _orders(bench)
    looked = _look_at(part, content)
    found = {
        name: links(looked.looks, looked.labels, order[looked.rows])
        for name, order in orders.items()
    }
    galleries = _gallery_table(bench, tables)
    out = [_table(bench, looked, found), *([galleries] if galleries.figures else [])]
    figures = []
    # Where shortcuts were planted, the surroundings are mostly theirs.
    top = clearest(found, in_the_middle=bool(bench.samples.attributes))
    if top is not None:
        figures += _draw(bench, looked, orders[top[0]], *top)
        figures.append(_gallery(bench, looked, orders[top[0]]))
    metrics = {
        "among": looked.among,
        "links": out[0].figures,
        "clearest": None if top is None else {"order": top[0], "figure": top[1]},
        "galleries": galleries.figures,
    }
    return Study(out, figures, {"discovery": metrics})


def _orders(bench: Workbench) -> tuple[dict[str, Array], list[Any]]:
    """Mean place over the seeds by name, higher for what comes first; and peel's tables."""
    columns: dict[str, list[Array]] = {}
    peeled = []
    for spec in with_shared(RANKERS, ranker_settings(bench), ranker_class):
        for seed in range(bench.options.seeds):
            bench.ranking(spec, seed)
            table = bench._ranking_table(spec, seed).table
            stages = Ranking(table).stages
            wanted = ("spuriosity",) if spec.name == "sebra" else stages
            if spec.name == "peel":
                peeled.append(table)
            for column in wanted:
                name = f"{spec.name} rank" if column == "spuriosity" else f"{spec.name} {column}"
                columns.setdefault(name, []).append(_places(table[column].to_numpy()))
    every = {k: v for k, v in columns.items() if len(v) == bench.options.seeds}
    return {k: np.mean(v, axis=0) for k, v in every.items()}, peeled


def _places(values: Array) -> Array:
    from scipy.stats import rankdata

    places: Array = rankdata(values) / len(values)
    return places


def _look_at(part: Samples, content: ImageArray) -> Looked:
    names, aligned = alignment(part)
    usable = aligned.all(axis=1) if names else np.ones(len(part), dtype=bool)
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero((part.labels == c) & usable))[:MOST_PICTURES]
            for c in range(len(part.classes))
        ]
    )
    among = f"samples aligned in {' and '.join(names)}" if names else "all samples"
    return Looked(part, content, rows, looks_of(content, rows), among)


def clearest(
    found: Mapping[str, list[Link]], in_the_middle: bool = False
) -> tuple[str, str] | None:
    """The order and figure with the strongest links that are shortcuts in two classes or more.

    in_the_middle: figures of the centre go first, by what is left of them beyond the border.
    """
    best: dict[bool, tuple[float, tuple[str, str]]] = {}
    for order, of_order in found.items():
        for figure in FIGURES:
            alike = [k for k in of_order if k.figure == figure and k.shortcut]
            if len(alike) < 2:
                continue
            left = [abs(k.beyond) for k in alike if in_the_middle and k.beyond is not None]
            middle = len(left) == len(alike)
            strength = float(np.mean(left if middle else [abs(k.rho) for k in alike]))
            if middle not in best or strength > best[middle][0]:
                best[middle] = (strength, (order, figure))
    return best[max(best)][1] if best else None


def _table(bench: Workbench, looked: Looked, found: Mapping[str, list[Link]]) -> Table:
    table = Table(f"{bench.name}: what pictures that come first have more of")
    rows = [(order, link) for order, of_order in found.items() for link in of_order]
    rows.sort(key=lambda row: (not row[1].shortcut, -abs(row[1].rho)))
    for order, k in rows:
        label = looked.part.classes[k.label]
        table.figures.append(
            {"order": order, "class": label, "figure": k.figure, "n": k.n, "rho": k.rho,
             "low": k.low, "high": k.high, "chance": k.chance, "typical": k.typical,
             "beyond_border": k.beyond, "shortcut": k.shortcut}
        )  # fmt: skip
        if k.shortcut and len(table.shown) < MOST_SHOWN:
            beyond = ABSENT if k.beyond is None else f"{k.beyond:+.2f}"
            table.shown.append(
                {"order": order, "class": label, "figure": k.figure,
                 "rho": f"{k.rho:+.2f} ({k.low:+.2f} to {k.high:+.2f})",
                 "typical": f"{k.typical:+.2f}", "beyond the border": beyond}
            )  # fmt: skip
    if not table.shown:
        table.shown.append({"order": "none", "figure": "no figure is a shortcut"})
    table.remarks += [
        f"among {looked.among}; the order is the mean over {bench.options.seeds} seeds",
        "rho: Spearman's, within the class, with its 95 % interval; typical: how far the class "
        "lies above the others, in standard deviations; beyond the border: rho once the border's "
        "figures are taken out",
        "shown are shortcuts: more of what is typical of the class comes first, and a shuffled "
        "order links any figure as strongly in less than 1 % of 1000 tries; table.csv has all",
    ]
    return table


def _gallery_table(bench: Workbench, tables: list[Any]) -> Table:
    """Of the samples that the report's contrast galleries show, how many differ in an attribute."""
    out = Table(f"{bench.name}: do the two sides of a bias's galleries differ in an attribute?")
    for seed, table in enumerate(tables):
        ranked = ranked_of(table, bench.samples)
        if not ranked.samples.attributes:
            return out
        names, aligned, _ = ranked.aligned()
        for stage, contrasts in pick(ranked).contrasts.items():
            for k, name in enumerate(names):
                right = [
                    side
                    for contrast in contrasts
                    for side in (aligned[contrast.follows, k], ~aligned[contrast.breaks, k])
                ]
                share = float(np.concatenate(right).mean())
                out.figures.append(
                    {"seed": seed, "bias": stage, "attribute": name, "differ": share}
                )
    stages = dict.fromkeys(f["bias"] for f in out.figures)
    for stage in stages:
        here = [f for f in out.figures if f["bias"] == stage]
        shown = {"bias": stage, "seeds": str(len({f["seed"] for f in here}))}
        for name in dict.fromkeys(f["attribute"] for f in here):
            values = [f["differ"] for f in here if f["attribute"] == name]
            shown[name] = f"{100 * np.mean(values):.0f} %"
        out.shown.append(shown)
    out.remarks.append(
        "share of shown samples on their side: aligned where they follow the bias, conflicting "
        "where they break it; 50 % is no difference"
    )
    return out


def _draw(bench: Workbench, looked: Looked, order: Array, name: str, top: str) -> list[Path]:
    """The clearest figure by slices of the order, for every class."""
    figure, axes = new_figure(6, 3.4)
    k = FIGURES.index(top)
    for c, label in enumerate(looked.part.classes[:MOST_CLASSES]):
        at = np.flatnonzero(looked.labels == c)
        values = looked.looks[at[np.argsort(-order[looked.rows[at]], kind="stable")], k]
        parts = [p for p in np.array_split(values, SLICES) if len(p)]
        style, marker, grey = LINES[c % len(LINES)]
        axes.errorbar(
            range(1, len(parts) + 1),
            [p.mean() for p in parts],
            yerr=[1.96 * p.std() / np.sqrt(len(p)) for p in parts],
            linestyle=style, marker=marker, color=grey, markersize=4, capsize=2, label=label,
        )  # fmt: skip
    axes.set_xlabel(f"tenth of the order by {name}, most spurious first")
    axes.set_ylabel(f"mean {top}")
    axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, bench, "discovery")


def _gallery(bench: Workbench, looked: Looked, order: Array) -> Path:
    """Both ends of the order for every class: what comes first above what comes last."""
    from PIL import Image

    classes = range(min(MOST_CLASSES, len(looked.part.classes)))
    height = (2 * SIDE + GAP) * len(classes) - GAP
    sheet = Image.new("RGB", (SIDE * PICTURES, height), "white")
    for c in classes:
        rows = looked.rows[looked.labels == c]
        rows = rows[np.argsort(-order[rows], kind="stable")]
        for line, end in enumerate((rows[:PICTURES], rows[::-1][:PICTURES])):
            for i, row in enumerate(end.tolist()):
                pixels = looked.content.pixels[looked.content.rows[row]]
                image = Image.fromarray(pixels).resize((SIDE, SIDE))
                sheet.paste(image, (i * SIDE, c * (2 * SIDE + GAP) + line * SIDE))
    path = bench.folder.path / "ends.jpg"
    sheet.save(path, quality=82)
    return path
