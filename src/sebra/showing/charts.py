"""Charts as inline SVG: text stays text, colours are the page's, so light, dark and print agree."""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from sebra.showing.words import shortened, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]

# The drawing library wants real colours: each stands for a variable of the style sheet and is
# replaced by it in the finished drawing.
INK, MUTED, GRID = "#010101", "#020202", "#030303"
SPURIOUS, CORE = "#040404", "#050505"
SERIES = tuple(f"#0600{k:02x}" for k in range(8))
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    SPURIOUS: "var(--spurious)",
    CORE: "var(--core)",
    **{colour: f"var(--series-{k})" for k, colour in enumerate(SERIES)},
}
MOST_LINES = len(SERIES)
WIDE, SMALL = (5.0, 2.5), (3.2, 1.8)  # inches; narrow, so that text stays readable on a phone
MARGINS = {"left": 0.18, "right": 0.98, "top": 0.95, "bottom": 0.27}
LABEL = 28  # characters of a name in a chart
LEGEND_LINE, LEGEND_KEY = 72, 6  # characters in a line of the legend, and what a key takes of them
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a class may be called $x$
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
}
ENLARGED = 1.2  # on a screen with room
_lock = threading.Lock()  # the library's settings are global
_number = re.compile(r"\d+\.\d{3,}")


@contextmanager
def drawing(width: float, height: float, fitted: bool = True) -> Iterator[tuple[Figure, Axes]]:
    """A figure of this size in inches and its axes, in the report's style.

    `fitted` makes room for whatever stands around the axes; without it drawing is twice as fast
    and the room is that of `MARGINS`.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with _lock, matplotlib.rc_context(cast(Any, STYLE)), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # glyphs missing in the font it measures with
        figure = Figure(figsize=(width, height), layout="constrained" if fitted else None)
        if not fitted:
            figure.subplots_adjust(**MARGINS)
        yield figure, figure.add_subplot()


def svg(figure: Figure, title: str, key: str) -> Markup:
    """The drawing as markup, with `title` for those who cannot see it; `key` keeps ids apart."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": key}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{key}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    text = _number.sub(lambda match: f"{float(match[0]):.1f}", text)
    view = re.search(r'viewBox="([^"]*)"', text)
    box = view[1] if view else "0 0 100 100"
    width = float(box.split()[2]) * 4 / 3 * ENLARGED  # points to pixels
    head = Markup(
        '<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="{}" role="img" '
        'style="width:{:.0f}px" aria-label="{}"><title>{}</title>'
    ).format(box, width, title, title)
    return head + Markup(text[text.index(">") + 1 :])  # the library escapes its text


def both_sides(title: str, follow: Array, other: Array, key: str) -> Markup:
    """How the values of one column lie on both sides of a pattern, each side as a share."""
    with drawing(*SMALL) as (figure, axes):
        edges = np.histogram_bin_edges(np.concatenate([follow, other]), bins=16)
        for values, colour, label in ((follow, SPURIOUS, "follow it"), (other, CORE, "break it")):
            shares = np.full(len(values), 100 / max(1, len(values)))
            axes.hist(values, edges.tolist(), weights=shares, color=colour, alpha=0.65, label=label)
        axes.set_xlabel(shortened(visible(title), 2 * LABEL))
        axes.set_ylabel("%")
        axes.legend(fontsize=8)
        return svg(figure, f"Values of {shortened(visible(title), 80)} on both sides", key)


def buckets(counts: Mapping[int, int], label: str, key: str) -> Markup:
    """How many samples of one class were learned in each round."""
    numbers, values = list(counts), list(counts.values())
    with drawing(*SMALL, fitted=False) as (figure, axes):
        span = max(numbers) - min(numbers) + 1
        axes.bar(numbers, values, width=0.82 if span > 1 else 0.3, color=_fade(numbers))
        axes.grid(axis="x", visible=False)
        axes.set_xlabel("round in which it was learned")
        axes.set_ylabel("samples")
        axes.locator_params(axis="y", nbins=4, integer=True)
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.margins(x=0.02)
        if span == 1:
            axes.set_xlim(numbers[0] - 1, numbers[0] + 1)
        top = max(counts, key=lambda b: counts[b])
        title = (
            f"Buckets of {shortened(label, 60)}: {len(counts)} used, the largest is number {top} "
            f"with {counts[top]} of {sum(values)} samples"
        )
        return svg(figure, visible(title), key)


def learned(epochs: Array, shares: Mapping[str, Array], key: str) -> Markup:
    """Share of each class learned so far, by round; of many classes the middle and the spread."""
    with drawing(*WIDE) as (figure, axes):
        if len(shares) <= MOST_LINES:
            for k, (label, values) in enumerate(shares.items()):
                axes.plot(epochs, 100 * values, color=SERIES[k], lw=2, label=_label(label))
        else:
            table = 100 * np.stack(list(shares.values()))
            low, middle, high = np.nanpercentile(table, [5, 50, 95], axis=0)
            axes.fill_between(epochs, low, high, color=SERIES[0], alpha=0.25, lw=0,
                              label="90 % of the classes")  # fmt: skip
            axes.plot(epochs, middle, color=SERIES[0], lw=2, label="middle class")
        axes.set_ylim(0, 103)
        _epochs(axes, epochs, "learned, %")
        _legend(figure)
        return svg(figure, "Share of each class learned so far, by round", key)


def lines(epochs: Array, series: Mapping[str, Array], unit: str, title: str, key: str) -> Markup:
    """Several figures over the rounds."""
    with drawing(*WIDE) as (figure, axes):
        for k, (label, values) in enumerate(list(series.items())[:MOST_LINES]):
            axes.plot(epochs, values, color=SERIES[k], lw=2, label=_label(label))
        _epochs(axes, epochs, unit)
        if len(series) > 1:
            _legend(figure)
        return svg(figure, title, key)


def along_rank(shares: Mapping[str, Array], key: str) -> Markup:
    """Per attribute the percent of aligned samples in equal slices of the rank."""
    with drawing(*WIDE) as (figure, axes):
        for k, (label, values) in enumerate(list(shares.items())[:MOST_LINES]):
            places = (np.arange(len(values)) + 0.5) * 100 / len(values)
            axes.plot(places, 100 * values, color=SERIES[k], lw=2, marker="o", ms=3.5,
                      label=_label(label))  # fmt: skip
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 103)
        axes.set_xlabel("place in the ranking, % (0 = most spurious)")
        axes.set_ylabel("aligned, %")
        _legend(figure)
        return svg(figure, "Share of samples that go with the class, along the rank", key)


def compared(groups: Sequence[str], accuracies: Mapping[str, Sequence[float]], key: str) -> Markup:
    """Accuracy per group, one dot per model."""
    with drawing(WIDE[0], 0.9 + 0.3 * len(groups)) as (figure, axes):
        places = np.arange(len(groups))[::-1]
        table = np.array([list(values) for values in accuracies.values()], dtype=float)
        axes.hlines(places, np.nanmin(table, 0), np.nanmax(table, 0), color=GRID, lw=3)
        for k, (label, values) in enumerate(list(accuracies.items())[:MOST_LINES]):
            axes.plot(
                values, places, "o", color=SERIES[k], ms=max(5, 10 - 3 * k), label=_label(label)
            )
        axes.set_yticks(places, [_label(g, 40) for g in groups])
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xlim(-2, 102)
        axes.set_ylim(-0.6, len(groups) - 0.4)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("accuracy on the test split, %")
        _legend(figure)
        return svg(figure, "Accuracy per group and model", key)


def _epochs(axes: Axes, epochs: Array, unit: str) -> None:
    axes.set_xlabel("round")
    axes.set_ylabel(unit)
    axes.locator_params(axis="x", integer=True)
    if len(epochs) > 1:
        axes.set_xlim(float(epochs[0]), float(epochs[-1]))


def _legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if not handles:
        return
    widest = max(len(label) for label in labels) + LEGEND_KEY
    figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=max(1, min(4, LEGEND_LINE // widest)),
        handlelength=1.2,
        columnspacing=1.4,
        labelcolor=INK,
    )


def _label(text: str, most: int = LABEL) -> str:
    label = shortened(visible(text), most)
    # The library leaves out of a legend what starts with an underscore.
    return f"\u200b{label}" if label.startswith("_") else label


def _fade(numbers: Sequence[int]) -> list[str]:
    """The early half in the colour of shortcuts, the late half in that of the rest."""
    middle = (min(numbers) + max(numbers)) / 2
    return [SPURIOUS if n <= middle else CORE for n in numbers]
