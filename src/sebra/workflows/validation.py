"""Who trains, who chooses the model, whom the figures come from: never the same samples.

Attributes choose nothing unless that was asked for (`--select groups`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaincc, xlogy
from torch import nn

from sebra.debiasing.choosing import Jury, groups_of
from sebra.debiasing.method import Pool
from sebra.debiasing.selection import Selector, Validate
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.measuring.groups import score
from sebra.measuring.ranks import known_attributes
from sebra.ranking.ranking import Ranking
from sebra.samples.table import Samples
from sebra.workflows.history import predicted_classes
from sebra.workflows.prepared import Prepared

HOLDOUT_SHARE = 0.2
LEAST_SPURIOUS_SHARE = 1 / 3
_SMALLEST_GROUP = 5  # of those that choose
_CHANCE = 0.01  # of taking a val split for another kind of samples that is none
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """Training samples that train, that choose the model, and that the figures come from.

    The last two are empty where a split of their own, or cross-validation, takes their place.
    """

    train: Index
    select: Index
    evaluate: Index


def split_training(
    samples: Samples, seed: int, holds_out: bool = True, beside_val: bool = False
) -> Parts:
    """A stratified fifth is held out for whatever has no split of its own.

    Figures come from the test split, else from val. val chooses where there is a test split, too.
    holds_out: whether the method chooses by held-out samples at all; beside_val: even then.
    """
    labels = samples.labels[samples.rows("train")]
    everyone = np.arange(len(labels), dtype=np.int64)
    has = {name: len(samples.rows(name)) > 0 for name in ("val", "test")}
    takes = {"evaluate": not any(has.values()), "select": beside_val}
    takes["select"] |= holds_out and not all(has.values())
    rng = np.random.default_rng(seed)
    parts: dict[str, list[Index]] = {"evaluate": [], "select": []}
    for c in range(len(samples.classes)):
        members = rng.permutation(everyone[labels == c])
        size = int(len(members) * HOLDOUT_SHARE)
        for name, wanted in takes.items():
            parts[name].append(members[:size] if wanted else members[:0])
            members = members[size:] if wanted else members
    evaluate, select = (np.sort(np.concatenate(parts[n])) for n in ("evaluate", "select"))
    train = np.setdiff1d(everyone, np.concatenate([evaluate, select]))
    return Parts(train, select, evaluate)


def pool_of(
    prepared: Prepared, ranked_on: Prepared, parts: Parts, ranking: Ranking | None
) -> Pool | None:
    """The samples that choose, with the patterns they follow; None where there are none.

    ranked_on: the data set with the network that the patterns are seen by.
    """
    if not has_val_to_choose_by(prepared.samples):
        return drawn_of(prepared, parts, ranking)
    stages = ranked_on.patterns("val", ranking)
    return Pool(prepared.task("val"), None if stages is None else stages.to(prepared.device))


def drawn_of(prepared: Prepared, parts: Parts, ranking: Ranking | None) -> Pool | None:
    """The training samples that were held out to choose, or to say what a model costs."""
    if not len(parts.select):
        return None
    index = torch.from_numpy(parts.select).to(prepared.device)
    stages = None
    if ranking is not None and ranking.stages:
        values = ranking.table[ranking.stages].to_numpy()[parts.select]
        stages = torch.from_numpy(values).float().to(prepared.device)
    return Pool(prepared.task("train").subset(index), stages)


def has_val_to_choose_by(samples: Samples) -> bool:
    """Whether val is there to choose by: without a test split the figures come from it."""
    return len(samples.rows("val")) > 0 and len(samples.rows("test")) > 0


def val_is_drawn_otherwise(on: Prepared, ranking: Ranking | None) -> bool:
    """Whether val samples follow the patterns of a ranking more or less often than training ones.

    Validation splits of benchmarks are often balanced over groups. Such a split cannot say what a
    model costs where samples are drawn like the training set. By a likelihood ratio for each class
    and pattern.
    """
    if ranking is None or not has_val_to_choose_by(on.samples):
        return False
    seen = on.patterns("val", ranking)
    if seen is None:
        return False
    own = ranking.table[ranking.stages].to_numpy(), on.samples.labels[on.samples.rows("train")]
    given = seen.cpu().numpy(), on.samples.labels[on.samples.rows("val")]
    ratio, tables = 0.0, 0
    for c, stage in np.ndindex(len(on.samples.classes), len(ranking.stages)):
        sides = [stages[labels == c, stage] > 0.5 for stages, labels in (own, given)]
        counts = np.array([[side.sum(), (~side).sum()] for side in sides], dtype=float)
        expected = np.outer(counts.sum(1), counts.sum(0)) / max(1.0, counts.sum())
        if (expected > 0).all():
            ratio += 2 * float((xlogy(counts, counts) - xlogy(counts, expected)).sum())
            tables += 1
    return tables > 0 and float(gammaincc(tables / 2, ratio / 2)) < _CHANCE


def make_selector(
    prepared: Prepared, parts: Parts, pool: Pool | None, ranking: Ranking | None, select: str
) -> Selector:
    """What chooses the epoch; the run says which criterion it uses.

    select: `groups` takes true groups, `auto` what is known without attributes: discovered
    patterns, else classes.
    """
    if select == "groups":
        return Selector(_by_groups(prepared, parts, pool), "groups")
    if pool is None or len(pool.task) == 0:
        return Selector(None, "last epoch")
    stages = pool.stages
    held = len(parts.select) and not has_val_to_choose_by(prepared.samples)
    if stages is None and ranking is not None and held:
        stages = _more_spurious(ranking, parts.select, pool.task)
    return Selector(_judged(pool.task, stages), "class" if stages is None else "discovered groups")


def _more_spurious(ranking: Ranking, rows: Index, task: Task) -> torch.Tensor:
    """A column that is one but for the least spurious third of every class, by rank."""
    rank = ranking.table["rank"].to_numpy()[rows]
    labels = task.targets.cpu().numpy()
    follows = np.ones(len(rows), dtype=np.float32)
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        count = max(1, round(len(members) * LEAST_SPURIOUS_SHARE))
        follows[members[np.argsort(-rank[members], kind="stable")][:count]] = 0.0
    return torch.from_numpy(follows)[:, None].to(task.device)


def _by_groups(prepared: Prepared, parts: Parts, pool: Pool | None) -> Validate:
    """By the worst true group, which a user must ask for."""
    samples = prepared.samples
    val = samples.rows("val")
    rows = val if has_val_to_choose_by(samples) else samples.rows("train")[parts.select]
    if pool is None or not (samples.attributes and known_attributes(samples)[rows].any()):
        raise UsageError(
            f"--select groups: the samples of {samples.source} that would choose have no attributes"
        )
    task = pool.task

    def validate(network: nn.Module) -> tuple[float, dict[str, float]]:
        predicted = predicted_classes(network, task)
        found = score(samples, rows, predicted, min_group=_SMALLEST_GROUP)
        balanced = found.balanced_average or found.average
        cues = {f"cue_{k}": v for k, v in found.cues.items()}
        worst = min((g.accuracy for g in found.groups if not g.small), default=balanced)
        # The mean over groups breaks ties between epochs with the same worst group.
        return worst + 1e-3 * balanced, {"worst_group": worst, "average": found.average, **cues}

    return validate


def _judged(task: Task, stages: torch.Tensor | None) -> Validate:
    """By classes, or by classes and patterns: the worst and the mean of them count alike."""
    groups = task.targets if stages is None else groups_of(stages, task.targets, 1)
    jury = Jury(task.targets, groups)

    def validate(network: nn.Module) -> tuple[float, dict[str, float]]:
        with evaluating(network):
            logits = predict(network, task, torch.arange(len(task), device=task.device))
        found = jury.figures(jury.right(logits))
        figures = {"balanced_accuracy": found.balanced, "worst_discovered": found.worst}
        return found.balanced + (0.0 if stages is None else found.worst), figures

    return validate
