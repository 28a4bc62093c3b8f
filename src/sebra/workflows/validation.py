"""How the best epoch is chosen: by the best evidence that the data offers, said in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sebra.debiasing.selection import Selector
from sebra.engine.task import Task
from sebra.measuring.groups import group_numbers, score
from sebra.measuring.ranks import known_attributes
from sebra.samples.table import Samples
from sebra.workflows.history import predicted_classes
from sebra.workflows.prepared import Prepared

HOLDOUT_SHARE = 0.2
LEAST_SPURIOUS_SHARE = 1 / 3
_SMALLEST_VALIDATION_GROUP = 5
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """Which training samples train and which are held out (none where there is a val split)."""

    train: Index
    heldout: Index


def split_training(samples: Samples, seed: int) -> Parts:
    """Everything trains where a val split exists; else a stratified 20 % is held out."""
    labels = samples.labels[samples.rows("train")]
    everyone = np.arange(len(labels), dtype=np.int64)
    if len(samples.rows("val")):
        return Parts(everyone, everyone[:0])
    rng = np.random.default_rng(seed)
    held = []
    for c in range(len(samples.classes)):
        members = rng.permutation(everyone[labels == c])
        held.append(members[: int(len(members) * HOLDOUT_SHARE)])
    heldout = np.sort(np.concatenate(held))
    return Parts(np.setdiff1d(everyone, heldout), heldout)


def make_selector(
    prepared: Prepared, parts: Parts, rank: Index | None, watch_from: int
) -> Selector:
    """The selector for this data; the run says which criterion it uses.

    rank: the ranks of the training samples, where there is a ranking. watch_from: the epoch from
    which the test split is looked at as well, for the mean of the last epochs (never to select).
    """
    watch = _Watch(prepared, watch_from)
    watch.selector = _selector(prepared, parts, rank, watch)
    return watch.selector


def _selector(prepared: Prepared, parts: Parts, rank: Index | None, watch: _Watch) -> Selector:
    samples = prepared.samples
    if len(samples.rows("val")):
        task, rows = prepared.task("val"), samples.rows("val")
        if _has_groups(samples, rows):
            return Selector(_ByGroups(samples, task, rows, watch), "worst validation group")
        return Selector(_Balanced(task, watch), "balanced validation accuracy")
    if len(parts.heldout) == 0:
        return Selector(None, "last epoch (too few samples to hold any out)")
    kept, words = parts.heldout, "balanced accuracy on held-out training samples"
    if rank is not None:
        kept = _least_spurious(samples, parts.heldout, rank)
        words = "balanced accuracy on the least spurious held-out training samples"
    index = torch.from_numpy(kept).to(prepared.device)
    return Selector(_Balanced(prepared.task("train").subset(index), watch), words)


def _has_groups(samples: Samples, rows: Index) -> bool:
    """Whether a group with known attributes is large enough there to be the worst one."""
    if not samples.attributes:
        return False
    groups = group_numbers(samples)[rows[known_attributes(samples)[rows]]]
    return len(groups) > 0 and int(np.bincount(groups).max()) >= _SMALLEST_VALIDATION_GROUP


def _least_spurious(samples: Samples, heldout: Index, rank: Index) -> Index:
    """Of each class the held-out third with the highest ranks."""
    labels = samples.labels[samples.rows("train")][heldout]
    chosen = []
    for c in np.unique(labels):
        members = heldout[labels == c]
        count = max(1, round(len(members) * LEAST_SPURIOUS_SHARE))
        chosen.append(members[np.argsort(-rank[members], kind="stable")][:count])
    return np.sort(np.concatenate(chosen))


class _Watch:
    """Looks at the test split in the last epochs; what it sees goes into the history only."""

    def __init__(self, prepared: Prepared, first: int) -> None:
        self._prepared, self._first = prepared, first
        self.selector: Selector | None = None  # its rows count the epochs, also of a resumed run
        self._has_test = len(prepared.samples.rows("test")) > 0

    def __call__(self, network: nn.Module) -> dict[str, float]:
        epoch = len(self.selector.rows) if self.selector is not None else 0
        if not self._has_test or epoch < self._first:
            return {}
        task = self._prepared.task("test")
        predicted = predicted_classes(network, task)
        return {"test_accuracy": float(100 * (predicted == task.targets.cpu().numpy()).mean())}


class _ByGroups:
    def __init__(self, samples: Samples, task: Task, rows: Index, watch: _Watch) -> None:
        self._samples, self._task, self._rows, self._watch = samples, task, rows, watch

    def __call__(self, network: nn.Module) -> tuple[float, dict[str, float]]:
        found = score(
            self._samples,
            self._rows,
            predicted_classes(network, self._task),
            min_group=_SMALLEST_VALIDATION_GROUP,
        )
        balanced = found.balanced_average or found.average
        worst = found.worst_group if found.worst_group is not None else balanced
        figures: dict[str, Any] = {"worst_group": worst, "average": found.average}
        figures.update({f"cue_{k}": v for k, v in found.cues.items()})
        # The mean over groups breaks ties between epochs with the same worst group.
        return worst + 1e-3 * balanced, {**figures, **self._watch(network)}


class _Balanced:
    def __init__(self, task: Task, watch: _Watch) -> None:
        self._task, self._watch = task, watch
        self._targets = task.targets.cpu().numpy()

    def __call__(self, network: nn.Module) -> tuple[float, dict[str, float]]:
        correct = predicted_classes(network, self._task) == self._targets
        per_class = [correct[self._targets == c].mean() for c in np.unique(self._targets)]
        balanced = float(100 * np.mean(per_class))
        return balanced, {"balanced_accuracy": balanced, **self._watch(network)}
