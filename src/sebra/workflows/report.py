"""`sebra report`: a run folder in, one HTML file out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sebra import __version__
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import HISTORY, METRICS, RANKING, REPORT, RunFolder
from sebra.runs.seal import seal_again
from sebra.samples.open import open_samples
from sebra.samples.parquet import read_parquet
from sebra.samples.table import ImageFiles, Samples
from sebra.showing.report import ReportInput, write_report
from sebra.showing.thumbnails import heated
from sebra.workflows.saliency import load_saliency
from sebra.workflows.verdicts import verdicts_of

if TYPE_CHECKING:
    import pandas as pd


def report_run(folder: RunFolder, out: str | None = None, data: str | None = None) -> Path:
    """Writes the report of a run; reads the samples again for their pictures."""
    if not folder.has(RANKING):
        raise UsageError(f"{folder.path}: no {RANKING} in it; give a rank, audit or debias run")
    config = folder.read_config()
    source = data or str(config.get("data", ""))
    attributes = config.get("attributes")
    samples = open_samples(source, tuple(attributes) if attributes else None)
    metrics = folder.read_metrics() if folder.has(METRICS) else {}
    comparisons = metrics.get("comparisons", ())
    if not comparisons and metrics.get("evaluation"):
        name = str(metrics.get("method", "model"))
        comparisons = ({"name": name, "evaluation": metrics["evaluation"]},)
        if metrics.get("plain"):
            comparisons = ({"name": "plain training", "evaluation": metrics["plain"]}, *comparisons)
    page = Path(out) if out else folder.path / REPORT
    shown = report_input(folder, samples, config, metrics, comparisons)
    found = write_report(replace(shown, originals=_originals(samples, page)), page)
    if out is None:
        seal_again(folder.path, REPORT)
    return found


def report_input(
    folder: RunFolder,
    samples: Samples,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> ReportInput:
    """Everything the report shows, from a run folder."""
    ranking = Ranking.load(folder.path)
    return ReportInput(
        title=f"Sebra: {samples.name}",
        table=ranking.table,
        samples=samples,
        data=str(config.get("data", samples.source)),
        folder=str(folder.path),
        history=_history(folder.path / HISTORY),
        metrics=metrics,
        config=config,
        faults=folder.read_quarantine(),
        command=command_of(config),
        version=str(config.get("version", __version__)),
        comparisons=comparisons,
        notes=tuple(metrics.get("notes", ())),
        heatmaps={
            bias: {label: heated(*pair) for label, pair in found.items()}
            for bias, found in load_saliency(folder.path).items()
        },
        verdicts=verdicts_of(folder).to_dict(),
    )


def _originals(samples: Samples, page: Path) -> str:
    """The folder whose files the ids are, seen from the page; "" where ids are no files."""
    content, ids = samples.content, samples.ids.tolist()
    if not isinstance(content, ImageFiles) or not ids:
        return ""
    root = Path(str(content.paths[0]).removesuffix(str(ids[0])))
    if any(root / i != p for i, p in zip(ids, content.paths, strict=True)):
        return ""
    with suppress(ValueError):  # on another drive
        return quote(Path(os.path.relpath(root, page.parent)).as_posix()) + "/"
    return ""


def _history(file: Path) -> pd.DataFrame | None:
    """The rounds of a run as numbers by class; None where it has none."""
    from pandas.api.types import infer_dtype, is_numeric_dtype

    table = read_parquet(file) if file.is_file() else None
    if table is None or not {"epoch", "label", "learned"} <= set(table.columns):
        return None
    for name, column in table.items():
        kind = infer_dtype(column, skipna=False)
        if kind != "string" if name == "label" else not is_numeric_dtype(column):
            raise UsageError(f"{file}: not the history of a run (column {name})")
    return table


def command_of(config: Mapping[str, Any]) -> str:
    """The command line that repeats a run."""
    import shlex

    words = ["sebra", str(config.get("command", "rank")), str(config.get("data", ""))]
    flags = {"image_size": "image-size", "rank_method": "rank-method", "min_group": "min-group"}
    skip = {"command", "data", "version", "settings", "overrides"}
    for key, value in config.items():
        if key not in skip and not isinstance(value, Mapping):
            shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{flags.get(key, key)}", shown]
    for text in config.get("overrides", ()):
        words += ["--set", str(text)]
    return shlex.join(words)
