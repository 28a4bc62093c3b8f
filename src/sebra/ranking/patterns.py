"""Discovered patterns: who else follows them, and how much rests on each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sebra.errors import UsageError, reason
from sebra.measuring.ranks import wilson
from sebra.ranking.atoms import holds
from sebra.ranking.balance import Flags, Floats, Ints
from sebra.ranking.candidate import margins
from sebra.ranking.ranking import Ranking

SAME = 0.5  # correlation of who follows them from which on two patterns are the same one


@dataclass(frozen=True)
class Reading:
    """What tells one pattern of other samples: see `PatternModel`; d are the columns it goes by."""

    columns: list[int]
    shift: Tensor
    scale: Tensor  # divided by the root of d
    head: Tensor  # d + 1 x classes
    thresholds: Tensor
    top: Tensor
    against: bool


@dataclass(frozen=True)
class PatternModel:
    """Tells of any samples how far they follow the patterns of a ranking, by their features.

    shift, scale: d, how features are standardised. heads: patterns x (d + 1) x classes, 0 outside a
    view. thresholds, top: patterns x classes; top is what samples of a class without the pattern
    count as, NaN for classes with it. against: 1 if a class is told against the likeliest other
    one, 0 if for itself. atoms: k x 2, columns and values whose holders are the last k features.
    """

    shift: Tensor
    scale: Tensor
    heads: Tensor
    thresholds: Tensor
    top: Tensor
    against: Tensor
    atoms: Tensor | None = None

    def follows(self, features: Tensor, labels: Tensor) -> Floats:
        """n x patterns, on the scale of the stage columns: above one half a sample follows it.

        features: n x d as the ranker saw them (`Task.seen`). labels: codes of the classes, as in
        training.
        """
        x = features.double().cpu()
        if self.atoms is not None:
            x = torch.cat([x, holds(features.float().cpu(), self.atoms).double()], 1)
        y = labels.cpu().numpy().astype(np.int64)
        if x.shape[1] != len(self.shift) or y.max(initial=0) >= self.heads.shape[2]:
            raise UsageError("the ranking's patterns are of other features or classes; rank again")
        x = (x - self.shift.double()) * self.scale.double()
        out = np.empty((len(x), len(self.heads)))
        for k, head in enumerate(self.heads.double()):
            logits = (x @ head[:-1] + head[-1]).numpy()
            told = margins(logits, y) if self.against[k] else logits[np.arange(len(y)), y]
            margin = told - self.thresholds[k].double().numpy()[y]
            top = self.top[k].double().numpy()[y]
            out[:, k] = share_of(np.where(np.isnan(top), margin, top))
        return out

    def only(self, which: list[int]) -> PatternModel | None:
        """The same for some of the patterns, by number; None for none."""
        if not which:
            return None
        parts = ("heads", "thresholds", "top", "against")
        return replace(self, **{name: getattr(self, name)[which] for name in parts})

    def save(self, path: Path) -> None:
        from safetensors.torch import save_file

        kept = {k: v for k, v in vars(self).items() if v is not None}
        save_file({k: v.float().contiguous() for k, v in kept.items()}, path)

    @classmethod
    def load(cls, path: Path) -> PatternModel:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            found = cls(**load_file(path))
            found._check()
        except (OSError, SafetensorError, TypeError, ValueError) as error:
            raise UsageError(f"{path}: damaged, or of another version ({reason(error)})") from None
        return found

    def _check(self) -> None:
        """A `ValueError` where the parts do not fit each other."""
        patterns, above, classes = self.heads.shape
        parts = (self.shift, self.scale, self.against, self.thresholds, self.top)
        sizes = [[above - 1]] * 2 + [[patterns]] + [[patterns, classes]] * 2
        if [list(part.shape) for part in parts] != sizes:
            raise ValueError("its parts do not fit each other")
        at = torch.zeros(0, 2) if self.atoms is None else self.atoms
        width = above - 1 - len(at)
        if at.shape[1:] != (2,) or not ((at[:, 0] >= 0) & (at[:, 0] < width)).all():
            raise ValueError(f"atoms are not columns of {width}")


def share_of(margin: Floats) -> Floats:
    """A margin as a number from 0 to 1, one half where it is zero."""
    out: Floats = 1 / (1 + np.exp(-np.clip(margin, -40, 40)))
    return out


def figures_of(
    follows: Flags, right: Flags, labels: Ints, chance: float, view: str | None = None
) -> dict[str, Any]:
    """What is known of a pattern without any attribute.

    right: where the plain model tells the class. view: where it was seen, None for all features.
    `without_it`: accuracy where it no longer goes with the class, both sides and classes alike.
    """
    sides = []
    for c in np.unique(labels):
        here = labels == c
        parts = [right[here & side] for side in (follows, ~follows)]
        sides.append(np.mean([p.mean() for p in parts if len(p)]))
    counts = np.bincount(labels)
    return {
        "chance": chance,
        "view": view,
        "followed_by": float(follows.mean()),
        "share": (np.bincount(labels, follows) / np.maximum(counts, 1)).tolist(),
        "with_it": _accuracy(right[follows]),
        "against_it": _accuracy(right[~follows]),
        "without_it": 100 * float(np.mean(sides)),
    }


def _accuracy(right: Flags) -> dict[str, Any]:
    """In percent, with Wilson's interval."""
    n = len(right)
    if n == 0:
        return {"samples": 0}
    low, high = wilson(float(right.mean()), n)
    accuracy = 100 * float(right.mean())
    return {"samples": n, "accuracy": accuracy, "low": 100 * low, "high": 100 * high}


def joined(stages: list[Reading], width: int, atoms: Tensor) -> PatternModel | None:
    """The patterns of these stages, over so many features."""
    if not stages:
        return None
    shift, scale = torch.zeros(2, width)
    heads = torch.zeros(len(stages), width + 1, len(stages[0].thresholds))
    for stage, head in zip(stages, heads, strict=True):
        root = len(stage.columns) ** 0.5  # a part of the scale that differs from view to view
        shift[stage.columns], scale[stage.columns] = stage.shift.cpu(), stage.scale.cpu() * root
        head[stage.columns], head[-1] = stage.head[:-1] / root, stage.head[-1]
    thresholds, top = (torch.stack([getattr(s, k) for s in stages]) for k in ("thresholds", "top"))
    against = torch.tensor([float(s.against) for s in stages])
    return PatternModel(
        shift, scale, heads, thresholds, top, against, atoms if len(atoms) else None
    )


def matched(now: Ranking, before: Ranking) -> dict[str, str]:
    """The pattern of `before` that each pattern of `now` is; those without one are left out.

    Only samples that both know are looked at, and each pattern is taken once, the closest first.
    """
    was = before.table.set_index("id")
    here = now.table[now.table["id"].isin(was.index)]
    if len(here) == 0 or not now.stages or not before.stages:
        return {}
    a = here[now.stages].to_numpy() > 0.5
    b = was.loc[here["id"], before.stages].to_numpy() > 0.5
    close = _correlation(a.astype(float), b.astype(float))
    out: dict[str, str] = {}
    while close.max() >= SAME:
        i, j = np.unravel_index(close.argmax(), close.shape)
        out[now.stages[i]] = before.stages[j]
        close[i, :] = close[:, j] = -1.0
    return out


def _correlation(a: Floats, b: Floats) -> Floats:
    """Of every column of a with every column of b; 0 where a column does not vary."""
    a, b = a - a.mean(0), b - b.mean(0)
    size = np.outer(np.sqrt((a * a).sum(0)), np.sqrt((b * b).sum(0)))
    return np.divide(a.T @ b, size, out=np.zeros_like(size), where=size > 0)
