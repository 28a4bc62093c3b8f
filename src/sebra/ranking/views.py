"""Patterns in narrow views: where a nuisance is loud, those that break it are told outright.

Over all features a mild mark costs the model few samples. In a view that shows little else (the
colour of a picture, a corner) it tells the class, and the samples told wrong break it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.engine.views import View
from sebra.ranking.atoms import with_atoms
from sebra.ranking.balance import Flags, Floats, Ints, best_other, looks_weights, neutral_weights
from sebra.ranking.candidate import find_candidate, kept
from sebra.ranking.crossfit import HeadJudge, Judge, NetworkJudge
from sebra.ranking.evidence import BELIEVED, MOST, Evidence, evidence_of

COVERED = 0.05  # chance to count a class in that lacks a pattern; few of its samples break it
HALF = 0.5  # of the best evidence, as a power of its chance: as good a candidate


@dataclass(frozen=True)
class Sight:
    """Who judges samples: over all features, and in each view; width: of features and figures;
    atoms: the values whose holders are figures, see `atoms.py`."""

    judge: HeadJudge | NetworkJudge
    views: list[tuple[HeadJudge, View]]
    width: int
    atoms: Tensor

    @staticmethod
    def of(task: Task, session: Session, config: Any) -> Sight:
        if not task.over_features:
            return Sight(NetworkJudge(task, session, config), [], 0, torch.zeros(0, 2))
        task, atoms = with_atoms(task)
        penalties = config.penalty, config.penalty_contrast
        views = [(HeadJudge(task.through(view), penalties), view) for view in task.views]
        figures = 0 if task.figures is None else task.figures.shape[1]
        return Sight(HeadJudge(task, penalties), views, task.inputs.shape[0] + figures, atoms)

    def at(self, number: int) -> tuple[HeadJudge, View]:
        """The judge and the columns of a view; of all features, without a name, for -1."""
        if number >= 0:
            return self.views[number]
        assert isinstance(self.judge, HeadJudge)
        return self.judge, View("", tuple(range(len(self.judge.scale))))


def strongest(
    judge: Judge,
    views: Sequence[Judge],
    before: Flags,
    labels: Ints,
    trust: Floats,
    heard: Flags,
    chance: float,
    plain: Floats | None = None,
) -> dict[str, Tensor]:
    """The strongest candidate, over all features or in one of the views.

    Of those that stand (by a `chance`, for the k-th stage its k-th power) and have half of the best
    one's evidence, it is the one that the plain model (its margins: `plain`) leans on most. `view`:
    its number, -1 for none. A cloud that leans where the plain model does not does so by nature.
    """
    found = [find_candidate(judge, before, labels, trust, heard)]
    found += [_in_view(v, judge, before, labels, trust, heard, 1 + len(views)) for v in views]
    easy = found[0]["easy"]
    goes_by = easy.numpy() if plain is None else plain
    leans = np.zeros(len(found))
    for k, one in enumerate(found):
        some = evidence_in(one).covers(COVERED)[labels] & heard
        leans[k] = _leans(one["margin"].numpy(), goes_by, some, labels)
        if ndtr(-leans[k] * some.sum() ** 0.5) > chance:
            one["sums"] = torch.zeros_like(one["sums"])
    chances = np.array([evidence_in(one).chance(len(found)) for one in found])
    best = int(chances.argmin())
    enough = min(chance ** (1 + before.shape[1]), chances[best] ** HALF)
    if chances[best] <= enough:
        best = int(np.where(chances <= enough, leans, -np.inf).argmax())
    return {**found[best], "easy": easy, "view": torch.tensor(best - 1)}


def evidence_in(found: Mapping[str, Tensor]) -> Evidence:
    """The evidence among what is kept of a candidate."""
    return Evidence(*(found[name].double().numpy() for name in vars(Evidence.none(0))))


def _leans(margin: Floats, easy: Floats, some: Flags, labels: Ints) -> float:
    """How far the model goes by a candidate: correlation of its margin with who follows it."""
    follows = np.where(margin > 0, 1.0, 0.0)
    a, b = (centred(x, labels, some) for x in (follows, easy))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def centred(values: Floats, labels: Ints, some: Flags) -> Floats:
    """Some of the values, less the mean of their class."""
    x, y = values[some], labels[some]
    out: Floats = x - (np.bincount(y, x) / np.maximum(np.bincount(y), 1))[y]
    return out


def _in_view(
    view: Judge, judge: Judge, before: Flags, labels: Ints, trust: Floats, heard: Flags, looks: int
) -> dict[str, Tensor]:
    """The pattern of a view: of every class what sets it apart from all others there. Several may
    share a mark, so each is told for itself, not against the likeliest other.

    Models of all else are only asked where there would be evidence if no label were wrong. Hardly
    ever can a class be told by so little but for a few wrong labels: half of a cloud is believed
    whatever they say.
    """
    y, weights = torch.from_numpy(labels), torch.from_numpy(neutral_weights(before, labels, trust))
    told = view.tell_apart(y, weights).double().numpy()
    head, (thresholds, apart) = view.head, half_way(told, labels)
    margin = told[np.arange(len(labels)), labels] - thresholds[labels]
    seems = np.where((margin > 0) | ~apart[labels], labels, best_other(told, labels))
    given, evidence = looks_weights(seems, labels), Evidence.none(told.shape[1])
    at_most = evidence_of(told, None, labels, seems != labels, heard, MOST)
    if given.sum() > 0 and at_most.chance(looks) <= COVERED:
        rest = judge.tell_class(y, torch.from_numpy(given)).double().numpy()
        evidence = evidence_of(told, rest, labels, seems != labels, heard, MOST)
        rights = np.maximum(evidence.rights, BELIEVED * evidence.clouds)
        evidence = replace(evidence, rights=rights)
    scale = max(float(margin.std()), 1e-12)
    head = None if head is None else head / scale
    return kept(evidence, head, margin=margin / scale, thresholds=thresholds / scale)


def half_way(told: Floats, labels: Ints) -> tuple[Floats, Flags]:
    """Per class the logit half way between its median and that of the others; is there a way?"""
    own, others = np.zeros((2, told.shape[1]))
    for c in np.unique(labels):
        own[c], others[c] = np.median(told[labels == c, c]), np.median(told[labels != c, c])
    return (own + others) / 2, own > others
