"""The HTML report of a run: one file that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sebra.samples.table import Fault, Samples
from sebra.showing.thumbnails import Thumbnail
from sebra.whole import write_text

if TYPE_CHECKING:
    import pandas as pd
    from PIL import Image


@dataclass(frozen=True)
class ReportInput:
    """Everything a report may show. Only the first three fields are needed; the table may be empty.

    table: the columns of `ranking.parquet`; `stage_*`, `noise`, `suggested` and `why` where known.
    samples: the data set; rows are found by id, so it may hold more than the training split.
    metrics, config, history: as the run folder holds them. comparisons: `{"name", "evaluation"}`
    per model. thumbnail: the picture of a row of the table, called from several threads; without
    it pictures are read from the samples. heatmaps: where a bias sits, per stage and class;
    those under `rank` contrast both ends of a class. verdicts: what was said of them so far, as
    `verdicts.json` holds it. originals: the address of the folder whose files the
    ids are.
    """

    title: str
    table: pd.DataFrame
    samples: Samples
    data: str = ""
    folder: str = ""
    history: pd.DataFrame | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    command: str = ""
    version: str = ""
    comparisons: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    thumbnail: Thumbnail | None = None
    heatmaps: Mapping[str, Mapping[str, Image.Image]] = field(default_factory=dict)
    verdicts: Mapping[str, Any] = field(default_factory=dict)
    originals: str = ""


def write_report(run: ReportInput, path: Path) -> Path:
    """Writes the report, under 15 MB whatever the size of the data, and returns its path."""
    return write_text(path, report_html(run))


def report_html(run: ReportInput) -> str:
    """The report as text."""
    from sebra.showing.page import render
    from sebra.showing.sections import page_context

    return render(page_context(run))
