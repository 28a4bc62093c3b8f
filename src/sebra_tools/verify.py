"""`sebra verify`: is a run still what was written, and does it belong to its data?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sebra import __version__
from sebra.checksums import of_file, of_json
from sebra.debiasing.model import DESCRIPTION, Model
from sebra.errors import SebraError, UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import METRICS, RANKING, RunFolder, as_cell
from sebra.runs.seal import read_checksums
from sebra.samples.marks import apply_marks
from sebra.samples.open import open_samples
from sebra.samples.table import ImageFiles, Samples
from sebra.workflows.verdicts import verdicts_of


def verify(folder: RunFolder) -> dict[str, Any]:
    """`faults`: what is wrong with a run, in words; `notes`: what a reader should know of it."""
    faults: list[str] = []
    notes: list[str] = []
    _files(folder, faults)
    config = _try(folder.read_config, faults) or {}
    metrics = _try(folder.read_metrics, faults) or {}
    ranking = _try(lambda: Ranking.load(folder.path), faults) if folder.has(RANKING) else None
    if ranking is not None:
        _ranking(ranking, metrics, str(config.get("command")), faults)
        _data(ranking, folder, config, faults, notes)
        _try(lambda: verdicts_of(folder, strict=True), faults)
    if folder.has(DESCRIPTION):
        _try(lambda: Model.load(folder.path, "cpu"), faults)
    if config and str(config.get("version")) != __version__:
        notes.append(f"made by version {config.get('version')}, this is {__version__}")
    return {"run": str(folder.path), "faults": list(dict.fromkeys(faults)), "notes": notes}


def _try(read: Any, faults: list[str]) -> Any:
    try:
        return read()
    except (SebraError, OSError) as error:
        faults.append(str(error))
        return None


def _files(folder: RunFolder, faults: list[str]) -> None:
    """Every file of the run is there, with its content; the configuration is that of the run."""
    if folder.checkpoint.is_dir():
        faults.append("the run is not finished: it has a checkpoint; go on with --resume")
        return
    try:
        kept = read_checksums(folder.path)
    except UsageError as error:
        faults.append(str(error))
        return
    for name, wanted in kept["files"].items():
        if not folder.has(name):
            faults.append(f"{name}: is missing")
        elif of_file(folder.path / name) != wanted:
            faults.append(f"{name}: is not what the run wrote")
    config = _try(folder.read_config, faults)
    if config is not None and of_json(config) != kept["id"]:
        faults.append("config.toml: does not give the id of the run; it is another run's")


def _ranking(ranking: Ranking, metrics: dict[str, Any], command: str, faults: list[str]) -> None:
    table = ranking.table
    said = metrics.get("samples", len(table))
    # The metrics of a model count the samples of all splits; those of training are ranked.
    if len(table) > said or (len(table) < said and command != "debias"):
        faults.append(f"{RANKING}: {len(table)} rows, {METRICS} says {said} samples")
    ordered = table.sort_values(["label", "rank"])
    if not (ordered.groupby("label").cumcount() == ordered["rank"]).all():
        faults.append(f"{RANKING}: the ranks of a class are not 0, 1, 2, …")


def _data(
    ranking: Ranking, folder: RunFolder, config: dict[str, Any], faults: list[str], notes: list[str]
) -> None:
    """The samples of the ranking are those of DATA, where it can be read."""
    try:
        samples = open_samples(str(config.get("data", "")))
        if config.get("exclude"):
            samples = apply_marks(samples, str(config["exclude"]))
    except (SebraError, OSError) as error:
        notes.append(f"the data was not compared ({error})")
        return
    train = samples.take(samples.rows("train"))
    ids = [str(i) for i in train.ids.tolist()]
    names = np.asarray(train.classes, dtype=object)[train.labels].tolist()
    unread = quarantined(folder, ids)
    now = {i: label for i, label in zip(ids, names, strict=True) if i not in unread}
    then = dict(zip(ranking.table["id"].astype(str), ranking.table["label"], strict=True))
    other = [i for i in {*now, *then} if str(now.get(i)) != str(then.get(i))]
    if other:
        faults.append(
            f"{config.get('data')}: {len(other)} training samples are others or have other labels "
            f"than when it was ranked (first: {min(other)})"
        )
    later = _later(samples, folder.path / METRICS)
    if later:
        notes.append(
            f"{config.get('data')}: {len(later)} of its files were written after the run (first: "
            f"{later[0]}); what is in them was not compared"
        )


def quarantined(folder: RunFolder, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that a run could not read; none where it left no list."""
    try:
        listed = {fault.id for fault in folder.read_quarantine()}
    except UsageError:
        return set()
    return {i for i in ids if as_cell(i) in listed}


def _later(samples: Samples, end: Path) -> list[Path]:
    """The files of the data that are younger than the end of the run."""
    content, source = samples.content, Path(samples.source)
    files = content.paths if isinstance(content, ImageFiles) else (source, *source.glob("*.npy"))
    if not end.is_file():
        return []
    made = end.stat().st_mtime
    return [file for file in files if file.is_file() and file.stat().st_mtime > made]
