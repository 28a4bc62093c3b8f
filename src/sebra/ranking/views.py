"""Patterns in narrow views: where a nuisance is loud, those that break it are told outright.

Over all features a mild mark costs the model few samples: the class is told without it. In a view
that shows little else (the colour of a picture, one of its corners) a mark on 95 % of a class tells
that class in 95 %, and the samples told wrong are those that break it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.engine.views import View
from sebra.ranking.balance import (
    Flags,
    Floats,
    Ints,
    contrast_weights,
    looks_weights,
    neutral_weights,
)
from sebra.ranking.candidate import ROUNDS, best_other, find_candidate
from sebra.ranking.crossfit import HeadJudge, Judge, NetworkJudge
from sebra.ranking.evidence import Evidence, evidence_in_view


@dataclass(frozen=True)
class Sight:
    """Who judges samples: over all features, and in each view; width: of features and figures."""

    judge: HeadJudge | NetworkJudge
    views: list[tuple[HeadJudge, View]]
    width: int

    @staticmethod
    def of(task: Task, session: Session, config: Any) -> Sight:
        if not task.over_features:
            return Sight(NetworkJudge(task, session, config), [], 0)
        penalties = config.penalty, config.penalty_contrast
        views = [(HeadJudge(task.through(view), penalties), view) for view in task.views]
        figures = 0 if task.figures is None else task.figures.shape[1]
        return Sight(HeadJudge(task, penalties), views, task.inputs.shape[0] + figures)

    def at(self, number: int) -> tuple[HeadJudge, View]:
        """The judge and the columns of a view; of all features, without a name, for -1."""
        if number >= 0:
            return self.views[number]
        assert isinstance(self.judge, HeadJudge)
        return self.judge, View("", tuple(range(len(self.judge.scale))))


def strongest(
    judge: Judge, views: Sequence[Judge], before: Flags, labels: Ints, trust: Floats, heard: Flags
) -> dict[str, Tensor]:
    """The candidate with the best evidence, over all features or in one of the views.

    What comes back is that of `find_candidate`, and `view`: the number of the view, -1 for none.
    """
    found = [find_candidate(judge, before, labels, trust, heard)]
    found += [_in_view(view, judge, before, labels, trust, heard) for view in views]
    chances = [Evidence(f["sums"].numpy(), f["spreads"].numpy()).chance for f in found]
    best = int(np.argmin(chances))
    return {**found[best], "easy": found[0]["easy"], "view": torch.tensor(best - 1)}


def _in_view(
    view: Judge, judge: Judge, before: Flags, labels: Ints, trust: Floats, heard: Flags
) -> dict[str, Tensor]:
    """The pattern of a view: of every class what sets it apart from all others there.

    Several classes may share a mark, so each is told for itself, not against the likeliest other.
    """
    rows, seems = np.arange(len(labels)), labels
    weights = neutral_weights(before, labels, trust)
    for _ in range(1 + ROUNDS):
        if weights.sum() == 0:
            break
        told = view.tell_apart(torch.from_numpy(seems), torch.from_numpy(weights)).double().numpy()
        head, thresholds = view.head, half_way(told, labels)
        margin = told[rows, labels] - thresholds[labels]
        seems = np.where(margin > 0, labels, best_other(told, labels))
        weights = contrast_weights(before, margin > 0, labels, trust)
    looks = looks_weights(seems, labels)
    none = np.zeros(told.shape[1])
    evidence = Evidence(none, none)
    if looks.sum() > 0:
        rest = judge.tell_class(torch.from_numpy(labels), torch.from_numpy(looks)).double().numpy()
        evidence = evidence_in_view(told, rest, labels, seems != labels, heard)
    scale = max(float(margin.std()), 1e-12)
    kept = {
        "margin": margin / scale,
        "sums": evidence.sums,
        "spreads": evidence.spreads,
        "thresholds": thresholds / scale,
    }
    out = {name: torch.from_numpy(value) for name, value in kept.items()}
    return out if head is None else {**out, "head": head / scale}


def half_way(told: Floats, labels: Ints) -> Floats:
    """Per class the logit half way between the medians of its samples and of the others."""
    out = np.zeros(told.shape[1])
    for c in np.unique(labels):
        own = labels == c
        out[c] = (np.median(told[own, c]) + np.median(told[~own, c])) / 2
    return out
