"""Does a model lean on a pattern? Its accuracy where samples follow it, and where they break it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sebra.engine.session import ProgressSink, Session
from sebra.errors import UsageError
from sebra.measuring.groups import MIN_GROUP
from sebra.ranking.balance import Flags, Ints
from sebra.ranking.patterns import figures_of
from sebra.ranking.ranking import Ranking
from sebra.runs.config import preset_names
from sebra.runs.folder import CONFIG, RANKING, RunFolder
from sebra.runs.meter import Meter
from sebra.samples.marks import apply_marks
from sebra.samples.open import open_samples
from sebra.samples.table import Samples
from sebra.workflows.prepare import prepare, ranked_on
from sebra.workflows.prepared import Source
from sebra_tools.answers import SPLITS, Answers, answers_of

_NETWORK = ("seed", "device", "mode", "backbone", "weights", "image_size")


def has_patterns(folder: RunFolder, data: str, split: str) -> bool:
    """Whether a run tells who follows its patterns in a split of this data; never of other data."""
    ranking = Ranking.load(folder.path) if folder.has(RANKING) else None
    if ranking is None or not ranking.stages:
        return False
    if split != "train" and ranking.patterns is None:
        return False
    return not folder.has(CONFIG) or folder.read_config().get("data") == data


def asked(
    predictions: str, data: str, attributes: Sequence[str] | None, device: str
) -> Callable[[RunFolder, ProgressSink | None], dict[str, Any]]:
    """`leaning` of a model on the patterns of a run to come; a wrong file is refused now."""
    samples = open_samples(data, attributes)
    answers = answers_of(predictions, samples, device)
    return lambda folder, progress: leaning(answers, folder, samples, progress)


def leaning(
    answers: Answers, folder: RunFolder, samples: Samples, progress: ProgressSink | None = None
) -> dict[str, Any]:
    """How a model does with and against each pattern of a ranking run.

    Measured on the test split, else on val, else on the ranked samples, whichever it answers for.
    """
    split = next((s for s in SPLITS if len(answers.known(samples, s))), None)
    if split is None:
        raise UsageError(f"{answers.name}: answers for less than half of every split")
    rows = answers.known(samples, split)
    stages: list[str] = []
    if has_patterns(folder, samples.source, split):
        stages, rows, follows = sides(folder, samples, split, rows, progress)
    right = answers.predicted[rows] == samples.labels[rows]
    patterns = [
        {"stage": stage, **sided(follows[:, k], right, samples.labels[rows])}
        for k, stage in enumerate(stages)
    ]
    out: dict[str, Any] = {"name": answers.name, "split": split, "samples": len(rows)}
    out |= {"accuracy": 100 * float(right.mean()), "patterns": patterns}
    if stages:
        out["worst"] = _worst(samples, rows, stages, follows, right)
    return out


def _worst(
    samples: Samples, rows: Ints, stages: list[str], follows: Flags, right: Flags
) -> dict[str, Any]:
    """The class and side of the patterns with the lowest accuracy, of those that are not small."""
    code = follows @ (1 << np.arange(len(stages)))
    found: list[dict[str, Any]] = []
    for label, side in np.unique(np.stack([samples.labels[rows], code]), axis=1).T.tolist():
        here = (samples.labels[rows] == label) & (code == side)
        if here.sum() >= MIN_GROUP:
            words = [
                f"{'follows' if side >> k & 1 else 'breaks'} {s}" for k, s in enumerate(stages)
            ]
            name = ", ".join([samples.classes[label], *words])
            accuracy = 100 * float(right[here].mean())
            found.append({"name": name, "samples": int(here.sum()), "accuracy": accuracy})
    return min(found, key=lambda g: float(g["accuracy"]), default={})


def sided(follows: Flags, right: Flags, labels: Ints) -> dict[str, Any]:
    """Accuracies on both sides; `drop` in points; `leans` where the intervals lie apart."""
    found = figures_of(follows, right, labels, chance=float("nan"))
    sides = {k: found[k] for k in ("with_it", "against_it")}
    if any(side["samples"] == 0 for side in sides.values()):
        return sides
    drop = sides["with_it"]["accuracy"] - sides["against_it"]["accuracy"]
    return {**sides, "drop": drop, "leans": sides["against_it"]["high"] < sides["with_it"]["low"]}


def sides(
    folder: RunFolder, samples: Samples, split: str, rows: Ints, progress: ProgressSink | None
) -> tuple[list[str], Ints, Flags]:
    """The patterns of a run, those of these rows of a split it can tell of, and who follows them.

    Of samples that were not ranked the features of the ranking's network tell it.
    """
    ranking = Ranking.load(folder.path)
    if split == "train":
        ids, follows = ranking.table["id"].to_numpy(), ranking.table[ranking.stages].to_numpy()
    else:
        ids, follows = _seen(folder, ranking, samples, split, progress)
    place = {str(i): k for k, i in enumerate(ids.tolist())}
    known = np.array([str(i) in place for i in samples.ids[rows]], dtype=np.bool_)
    if not known.any():
        raise UsageError(f"{folder.path}: its ranking is of other data than {samples.source}")
    rows = rows[known]
    at = np.array([place[str(i)] for i in samples.ids[rows]], dtype=np.int64)
    return ranking.stages, rows, follows[at] > 0.5


def _seen(
    folder: RunFolder,
    ranking: Ranking,
    samples: Samples,
    split: str,
    progress: ProgressSink | None,
) -> tuple[Any, Any]:
    config = folder.read_config() if folder.has(CONFIG) else {}
    chosen = {k: config[k] for k in _NETWORK if k in config}
    source = Source(data=samples.source, **chosen)
    named = str(config.get("preset", ""))
    preset = named if named in preset_names() else None
    method = config.get("rank", {}).get("method") or config.get("method", "peel")
    if config.get("exclude"):
        samples = apply_marks(samples, str(config["exclude"]))
    session, meter = Session(progress=progress), Meter()
    prepared = prepare(source, session, meter, samples, preset)
    on = ranked_on(prepared, str(method), preset, meter)
    found = on.patterns(split, ranking)
    if found is None:
        raise UsageError(
            f"{folder.path}: cannot tell the patterns of {split} samples; rank over features "
            "(--mode features) with --method peel"
        )
    return on.readable(split).ids, found.numpy()
