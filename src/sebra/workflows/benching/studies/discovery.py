"""What the two ends of a ranking look like: figures of the pictures against rank and stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.measuring.ranks import somers_d
from sebra.ranking.ranking import Ranking
from sebra.samples.table import ImageArray
from sebra.workflows.benching.plan import Spec
from sebra.workflows.benching.studies.common import Study, new_figure, save_figure
from sebra.workflows.benching.tables import Table
from sebra.workflows.benching.workbench import Workbench

Array = npt.NDArray[Any]
FIGURES = (
    "brightness",
    "redness",
    "greenness",
    "blueness",
    "colourfulness",
    "detail",
    "border brightness",
    "border blueness",
    "centre brightness",
    "centre redness",
)
MOST_PICTURES = 4000  # per class
SHOWN = 10  # pictures from each end in the gallery
SLICES = 10
CLEAR = 0.15  # Somers' D from which a figure is called related


def discovery(bench: Workbench) -> Study:
    """Per class, how simple figures of the pictures go with the rank and with every stage."""
    spec = Spec("sebra", "sebra")
    bench.ranking(spec, 0)
    table = bench._ranking_table(spec, 0).table
    part, content = bench.prepared._read("train")
    if not isinstance(content, ImageArray):
        raise UsageError("study discovery: needs pictures; this data has none")
    columns = {"rank": table["spuriosity"].to_numpy()}
    columns |= {s: table[s].to_numpy() for s in Ranking(table).stages}
    looks, rows = _looks(content, part.labels, len(part.classes))
    out = Table(f"{bench.name}: what goes with the ranking")
    found: list[dict[str, Any]] = []
    for name, column in columns.items():
        for c, label in enumerate(part.classes):
            at = part.labels[rows] == c
            for k, figure in enumerate(FIGURES):
                d = somers_d(looks[at, k], _levels(column[rows[at]]))
                if np.isfinite(d) and abs(d) >= CLEAR:
                    found.append({"order": name, "class": label, "figure": figure, "d": float(d)})
    found.sort(key=lambda f: -abs(f["d"]))
    out.figures = found
    out.shown = [{**f, "d": f"{f['d']:+.2f}"} for f in found[:24]]
    out.remarks.append(
        "Somers' D of a figure of the pictures given the order; positive: the more spurious "
        f"samples have more of it; below {CLEAR} left out"
    )
    figures = _gallery(bench, content, part.labels, part.classes, columns["rank"])
    if found:
        figures += _draw(bench, looks, rows, part, columns, found[0])
    return Study([out] if out.shown else [], figures, {"discovery": found})


def _looks(content: ImageArray, labels: Array, classes: int) -> tuple[Array, Array]:
    """Figures per picture, and the rows they are of."""
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == c))[:MOST_PICTURES] for c in range(classes)]
    )
    return np.stack([_look(content.pixels[content.rows[r]]) for r in rows]), rows


def _look(pixels: Array) -> Array:
    x = pixels[:: max(1, len(pixels) // 32), :: max(1, pixels.shape[1] // 32)].astype(float) / 255
    n, m = x.shape[0] // 4, x.shape[1] // 4
    edge = np.ones(x.shape[:2], dtype=bool)
    edge[n:-n, m:-m] = False
    grey = x.mean(2)

    def more_of(part: Array, channel: int) -> float:
        mean = part.reshape(-1, 3).mean(0)
        return float(mean[channel] - np.delete(mean, channel).mean())

    centre, border = x[n:-n, m:-m], x[edge]
    return np.array(
        [
            grey.mean(),
            *(more_of(x, k) for k in range(3)),
            (x.max(2) - x.min(2)).mean(),
            np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean(),
            border.mean(),
            more_of(border, 2),
            centre.mean(),
            more_of(centre, 0),
        ]
    )


def _levels(values: Array, most: int = 200) -> Array:
    """The order in at most `most` levels, so that pairs of neighbours count as ties."""
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return order * min(most, len(order)) // max(1, len(order))


def _draw(
    bench: Workbench, looks: Array, rows: Array, part: Any, columns: dict[str, Array], top: Any
) -> list[Path]:
    """The clearest figure, averaged over slices of the order, for every class."""
    figure, axes = new_figure(6, 3.4)
    k = FIGURES.index(top["figure"])
    for c, label in enumerate(part.classes[:10]):
        at = part.labels[rows] == c
        values = looks[at, k][np.argsort(-columns[top["order"]][rows[at]], kind="stable")]
        means = [float(part_.mean()) for part_ in np.array_split(values, SLICES) if len(part_)]
        axes.plot(range(len(means)), means, marker="o", label=label)
    axes.set_xlabel(f"slice of the order by {top['order']}, most spurious first")
    axes.set_ylabel(f"mean {top['figure']}")
    axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, bench, "discovery")


def _gallery(
    bench: Workbench, content: ImageArray, labels: Array, classes: Any, order: Array
) -> list[Path]:
    """Both ends of every class as one sheet of pictures."""
    from PIL import Image

    side, names = 96, classes[:10]
    sheet = Image.new("RGB", (side * SHOWN, (2 * side + 8) * len(names)), "white")
    for c in range(len(names)):
        rows = np.flatnonzero(labels == c)
        rows = rows[np.argsort(-order[rows], kind="stable")]
        for line, end in enumerate((rows[:SHOWN], rows[-SHOWN:])):
            for i, row in enumerate(end.tolist()):
                image = Image.fromarray(content.pixels[content.rows[row]]).resize((side, side))
                sheet.paste(image, (i * side, c * (2 * side + 8) + line * side))
    path = bench.folder.path / "ends.jpg"
    sheet.save(path, quality=80)
    return [path]
