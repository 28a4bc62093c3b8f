"""`sebra verify`: is a run still what was written, and does it belong to its data?"""

from __future__ import annotations

from typing import Any

import numpy as np

from sebra import __version__
from sebra.checksums import of_file, of_json
from sebra.debiasing.model import DESCRIPTION, Model
from sebra.errors import SebraError, UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import METRICS, RANKING, RunFolder, schema_faults
from sebra.runs.seal import read_checksums
from sebra.samples.marks import apply_marks
from sebra.samples.open import open_samples


def verify(folder: RunFolder) -> dict[str, Any]:
    """`faults`: what is wrong with a run, in words; `notes`: what a reader should know of it."""
    faults: list[str] = []
    notes: list[str] = []
    _files(folder, faults)
    config = _try(folder.read_config, faults) or {}
    metrics = _try(folder.read_metrics, faults) or {}
    faults += [f"{METRICS}: {fault}" for fault in schema_faults(metrics)]
    ranking = _try(lambda: Ranking.load(folder.path), faults) if folder.has(RANKING) else None
    if ranking is not None:
        _ranking(ranking, metrics, str(config.get("command")), faults)
        _data(ranking, folder, config, faults, notes)
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
    if table["id"].duplicated().any():
        faults.append(f"{RANKING}: an id occurs twice")
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
    unread = folder.quarantined(ids)
    now = {i: label for i, label in zip(ids, names, strict=True) if i not in unread}
    then = dict(zip(ranking.table["id"].astype(str), ranking.table["label"], strict=True))
    other = [i for i in {*now, *then} if str(now.get(i)) != str(then.get(i))]
    if other:
        faults.append(
            f"{config.get('data')}: {len(other)} training samples are others or have other labels "
            f"than when it was ranked (first: {min(other)})"
        )
