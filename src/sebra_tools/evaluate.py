"""`sebra evaluate`: a model run against groups, a ranking run against the true attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sebra import __version__
from sebra.debiasing.model import WEIGHTS, Model
from sebra.engine.session import ProgressSink
from sebra.errors import UsageError
from sebra.measuring.groups import MIN_GROUP
from sebra.plugins import EVALUATIONS, RANKING_EVALUATIONS, plugins
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import CONFIG, RANKING, RunFolder
from sebra.runs.meter import Meter
from sebra.samples.open import open_samples
from sebra.samples.table import Samples
from sebra.workflows.evaluate import evaluate_model
from sebra.workflows.rank import measure
from sebra_tools.verify import quarantined


def evaluate_run(
    folder: RunFolder,
    data: str,
    attributes: tuple[str, ...] | None = None,
    device: str = "auto",
    min_group: int = MIN_GROUP,
    seeds: int = 1,
    pd_k: int | None = None,
    progress: ProgressSink | None = None,
) -> dict[str, Any]:
    """The figures of a run on DATA: `evaluation` of a model, `ranking` of a ranking."""
    meter = Meter()
    out: dict[str, Any] = {"version": __version__, "data": data, "run": str(folder.path)}
    if folder.has(WEIGHTS):
        with meter.phase("open"):
            samples = _as_trained(open_samples(data, attributes), folder, data)
            asked = [plugin.load()(data) for plugin in plugins(EVALUATIONS).values()]
            model = Model.load(folder.path, device)
        with meter.phase("evaluate"):
            split, found = evaluate_model(model, samples, min_group)
        out["evaluation"] = {"split": split, **found.to_dict()}
        for measure_beside in filter(None, asked):
            with meter.phase("companions"):
                out["evaluation"] |= measure_beside(model, samples, split, found)
    elif folder.has(RANKING):
        with meter.phase("evaluate"):
            out["ranking"] = _evaluate_ranking(
                folder, data, attributes, device, seeds, pd_k, meter, progress
            )
    else:
        raise UsageError(f"{folder.path}: holds neither a model nor a ranking")
    return {**out, **meter.result()}


def _as_trained(samples: Samples, folder: RunFolder, data: str) -> Samples:
    """The data set without training images that the run could not read, if it is the run's own.

    Training groups weigh the I.D. accuracy, and evaluating does not open their images again.
    """
    if not folder.has(CONFIG) or folder.read_config().get("data") != data:
        return samples
    train = samples.rows("train")
    bad = quarantined(folder, samples.ids[train].tolist())
    gone = [row for row in train.tolist() if samples.ids[row] in bad]
    return samples.take(np.setdiff1d(np.arange(len(samples)), gone)) if gone else samples


def _evaluate_ranking(
    folder: RunFolder,
    data: str,
    attributes: tuple[str, ...] | None,
    device: str,
    seeds: int,
    pd_k: int | None,
    meter: Meter,
    progress: ProgressSink | None,
) -> dict[str, Any]:
    ranking = Ranking.load(folder.path)
    samples = open_samples(data, attributes)
    train = samples.take(samples.rows("train"))
    out: dict[str, Any] = {}
    known = set(ranking.table["id"])
    readable = np.array([i in known for i in train.ids], dtype=np.bool_)
    if not readable.any():
        raise UsageError(f"{folder.path}: is a ranking of other data than {data} (no common id)")
    rest = samples.rows("train")[~readable]
    samples = samples.take(np.setdiff1d(np.arange(len(samples)), rest))
    if not readable.all():
        gone, total = int((~readable).sum()), len(readable)
        if 2 * gone > total:
            raise UsageError(
                f"{folder.path}: is a ranking of other data than {data} ({gone} of {total} "
                "training samples are not in it)"
            )
        if progress is not None:
            progress.message(f"{gone} of {total} training samples are not in the ranking: left out")
    ranking = ranking.taken(samples.take(samples.rows("train")))
    out.update(measure(ranking, samples))
    if len(samples.rows("test")):
        config = folder.read_config() if folder.has(CONFIG) else {}
        for plugin in plugins(RANKING_EVALUATIONS).values():
            with meter.phase(plugin.name):
                asked = (config, data, device, seeds, pd_k, progress)
                out.update(plugin.load()(ranking, samples, *asked))
    return out
