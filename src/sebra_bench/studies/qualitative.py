"""What rankings look like: both ends of Sebra's, and the neurons that Spuriosity Rankings uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.ranking.ranking import Blind
from sebra.ranking.registry import ranker_class
from sebra.samples.table import ImageArray, Samples, alignment
from sebra_bench.baselines.neurons import NeuronsRanker
from sebra_bench.plan import Spec, with_shared
from sebra_bench.rows import Row
from sebra_bench.studies.common import Study, ranker_settings
from sebra_bench.tables import Table
from sebra_bench.workbench import Workbench

SEBRA, NEURONS = Spec("sebra", "sebra"), Spec("neurons", "neurons")
SHOWN = 8  # pictures from each end, and of each neuron
TOP = 5  # neurons of a class
CLASSES = 6  # with galleries; the table has them all
NEURON_CLASSES = 2
DOTS_PER_INCH = 90
ENDS = {"top": "most\nspurious", "bottom": "least\nspurious"}


@dataclass(frozen=True)
class _Pictures:
    """The training pictures and what is known of them."""

    part: Samples
    content: ImageArray

    def image(self, row: int) -> npt.NDArray[np.uint8]:
        found: npt.NDArray[np.uint8] = self.content.pixels[self.content.rows[row]]
        return found

    def words(self, row: int) -> str:
        """The attribute values of a picture, to stand under it."""
        values = (a.levels[a.codes[row]] if a.codes[row] >= 0 else "?" for a in self._attributes)
        return " / ".join(values)

    @property
    def _attributes(self) -> Sequence[Any]:
        return list(self.part.attributes.values())


def qualitative(bench: Workbench) -> Study:
    """Galleries of the first seed: Sebra's most and least spurious, and the top neurons."""
    part, content = bench.prepared._read("train")
    if not isinstance(content, ImageArray):
        raise UsageError(f"study qualitative: needs pictures; {bench.samples.source} has none")
    pictures = _Pictures(part, content)
    shared = ranker_settings(bench)
    sebra, neurons = with_shared([SEBRA, NEURONS], shared, ranker_class)
    ends = _ends(bench, sebra, pictures)
    marked = _neurons(bench, neurons)
    place = {str(name): i for i, name in enumerate(part.ids.tolist())}
    rows = [
        {**entry, "rows": [place[name] for name in entry["examples"]]}
        for entry in marked["neurons"]
    ]
    tables = [_ends_table(bench, pictures, ends), _neurons_table(bench, pictures, rows)]
    figures = [
        _draw(bench, "qualitative", pictures, _end_lines(part, ends)),
        _draw(bench, "neurons", pictures, _neuron_lines(part, rows)),
    ]
    return Study(tables, figures)


def _ends(bench: Workbench, spec: Spec, pictures: _Pictures) -> dict[tuple[int, str], list[int]]:
    """Training rows at both ends of every class, from the end inwards."""
    bench.ranking(spec, 0)
    table = bench._ranking_table(spec, 0).aligned_to(pictures.part.ids)
    rank, labels = table["rank"].to_numpy(), pictures.part.labels
    out = {}
    for c in range(len(pictures.part.classes)):
        members = np.flatnonzero(labels == c)
        ordered = members[np.argsort(rank[members], kind="stable")]
        count = min(SHOWN, len(ordered) // 2)
        out[c, "top"] = ordered[:count].tolist()
        out[c, "bottom"] = ordered[len(ordered) - count :][::-1].tolist()
    return out


def _neurons(bench: Workbench, spec: Spec) -> Row:
    """The row with the neurons that count most for each class and what excites them."""
    key = {"kind": "neurons", "method": spec.label, "seed": 0}
    identity = bench.ranking_identity(spec, 0)
    found = bench.rows.find(key, identity)
    if found is not None:
        return found
    prepared = bench.to_rank(0)
    ranker = NeuronsRanker(bench.ranker_config(spec))
    with bench.running("neurons seed 0") as (session, meter), meter.phase("rank"):
        ranker.rank(prepared.task("train"), session, Blind())
    part = prepared.split("train")[0]
    listed = [
        {
            "class": part.classes[c],
            "neuron": n.neuron,
            "importance": n.importance,
            "examples": [str(part.ids[i]) for i in n.examples[:SHOWN]],
        }
        for c, neurons in enumerate(ranker.neurons)
        for n in neurons[:TOP]
    ]
    facts = {**meter.result(), **bench.facts(prepared)}
    row = {**key, "neurons": listed, **facts, "identity": identity}
    return bench.rows.add(row)


def _ends_table(
    bench: Workbench, pictures: _Pictures, ends: Mapping[tuple[int, str], Sequence[int]]
) -> Table:
    table = Table(f"{bench.name}: both ends of Sebra's ranking")
    part = pictures.part
    for (c, end), rows in ends.items():
        lead = {"class": part.classes[c], "end": end}
        table.shown.append({**lead, "pictures": str(len(rows)), **_shares(bench, part, rows)})
        for position, row in enumerate(rows):
            table.figures.append(
                {**lead, "position": position, "id": str(part.ids[row]), **_values(part, row)}
            )
    table.remarks.append(_remark(part))
    return table


def _neurons_table(
    bench: Workbench, pictures: _Pictures, rows: Sequence[Mapping[str, Any]]
) -> Table:
    table = Table(f"{bench.name}: the neurons that count most (Spuriosity Rankings)")
    part = pictures.part
    for entry in rows:
        lead = {"class": entry["class"], "neuron": str(entry["neuron"])}
        shares = _shares(bench, part, entry["rows"])
        table.shown.append({**lead, "importance": f"{entry['importance']:.3g}", **shares})
        for position, row in enumerate(entry["rows"]):
            table.figures.append(
                {
                    **lead,
                    "importance": entry["importance"],
                    "position": position,
                    "id": str(part.ids[row]),
                    **_values(part, row),
                }
            )
    table.remarks.append(_remark(part))
    return table


def _remark(part: Samples) -> str:
    if not part.attributes:
        return "no attributes are known of this data"
    return "columns of attributes: how many of these pictures have the class's usual value"


def _shares(bench: Workbench, part: Samples, rows: Sequence[int]) -> dict[str, str]:
    names, aligned = alignment(bench.samples)
    shown = aligned[bench.samples.rows("train")][list(rows)]
    return {name: f"{int(shown[:, k].sum())} of {len(rows)}" for k, name in enumerate(names)}


def _values(part: Samples, row: int) -> dict[str, str]:
    return {
        name: a.levels[a.codes[row]] if a.codes[row] >= 0 else ""
        for name, a in part.attributes.items()
    }


Line = tuple[str, Sequence[int]]  # what stands left of a line of pictures, and their rows


def _end_lines(part: Samples, ends: Mapping[tuple[int, str], Sequence[int]]) -> list[Line]:
    return [
        (f"{part.classes[c]},\n{ENDS[end]}", rows)
        for (c, end), rows in ends.items()
        if c < CLASSES and rows
    ]


def _neuron_lines(part: Samples, rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    kept = part.classes[:NEURON_CLASSES]
    return [
        (f"{entry['class']},\nneuron {entry['neuron']}", entry["rows"])
        for entry in rows
        if entry["class"] in kept
    ]


def _draw(bench: Workbench, name: str, pictures: _Pictures, lines: Sequence[Line]) -> Path:
    """A sheet: lines of pictures, their names to the left, attributes under each picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.2 * SHOWN + 1.2, 1.4 * len(lines)), layout="constrained")
    panels = figure.subplots(len(lines), SHOWN, squeeze=False)
    for line, (title, rows) in zip(panels, lines, strict=True):
        for axes in line:
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
        line[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=10, labelpad=8)
        for axes, row in zip(line, rows, strict=False):
            axes.imshow(pictures.image(row))
            axes.set_xlabel(pictures.words(row), fontsize=8, labelpad=2)
    path = bench.folder.path / f"{name}.png"
    _save_small(figure, path)
    return path


def _save_small(figure: Any, path: Path) -> None:
    """As a PNG of 256 colours: a sheet of photographs is a third as large."""
    import io

    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DOTS_PER_INCH, format="png")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256).save(path, optimize=True)
