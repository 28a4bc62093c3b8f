"""Single values that most of a class hold in one column of an array, though they do not fit it.

Hardly two measurements are equal, and counts or kinds are whole steps apart. A value that many hold
and that is neither is a default, a broken sensor or a mark: a view of its own (`views.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sebra.engine.task import Task
from sebra.engine.views import View
from sebra.ranking.balance import Floats, Ints
from sebra.ranking.evidence import MOST
from sebra.ranking.noise import MOST_NUMBERS

_LACK = 0.5  # of some class lacks the value, or it would say nothing of classes
_BLOCK = 8192


def with_atoms(task: Task) -> tuple[Task, Tensor]:
    """The task with a view for every column with such values; k x 2, their columns and values."""
    none = torch.zeros(0, 2, dtype=torch.float64)
    if task.views or len(task) * task.inputs.shape[0] > MOST_NUMBERS:
        return task, none
    parts = torch.split(torch.arange(len(task), device=task.device), _BLOCK)
    x = torch.cat([task.batch(part).float().cpu() for part in parts])
    found = atoms_of(x.numpy(), task.targets.cpu().numpy())
    if not found:
        return task, none
    atoms = torch.tensor(found, dtype=torch.float64)
    figures = torch.zeros(len(task.inputs), len(found))
    figures[task.rows.cpu()] = holds(x, atoms)
    views = []
    for column in sorted({j for j, _ in found}):
        own = (x.shape[1] + k for k, (j, _) in enumerate(found) if j == column)
        views.append(View(f"a fixed value in column {column}", tuple(own)))
    return replace(task, figures=figures.to(task.device), views=tuple(views)), atoms


def holds(x: Tensor, atoms: Tensor) -> Tensor:
    """n x k, 1 where a sample holds the value."""
    return (x[:, atoms[:, 0].long()].double() == atoms[:, 1]).float()


def atoms_of(x: Floats, labels: Ints) -> list[tuple[int, float]]:
    """Columns and values."""
    found, codes = set(), np.unique(labels)
    for c in codes:
        own = x[labels == c]
        middle = np.median(own, axis=0)
        for j in np.flatnonzero((own == middle).mean(axis=0) >= MOST):
            held = x[:, j] == middle[j]
            shares = np.bincount(labels, held)[codes] / np.bincount(labels)[codes]
            if shares.min() < 1 - _LACK and not _fits(x[~held, j], middle[j]):
                found.add((int(j), float(middle[j])))
    return sorted(found)


def _fits(others: Floats, value: float) -> bool:
    """Whether a value that many hold is what the others of its column would have expected."""
    steps = np.diff(np.unique(others))
    if len(steps) == 0:
        return True  # one of two kinds
    nearest = np.abs(others - value).min()
    if (value < others.min() or value > others.max()) and nearest <= steps.max():
        return True  # a bound at which values are cut off, as in the outputs of a network
    if len(steps) + 1 > len(others) / 2:
        return False  # measurements
    return bool(np.isclose(nearest, np.median(steps)))
