"""Balanced peeling: find the strongest shortcut, neutralise it by balancing, find the next.

The faithful method takes learned samples away. In what is left the shortcut predicts the opposite
class, so its reverse is learned next and a second shortcut never gets a rank of its own. Here each
stage trains on all samples, weighted so that the shortcuts found so far say nothing of the class.

A stage has three steps, all with held-out predictions:
1. A model learns the class under those weights. The samples it gets wrong are the suspects.
2. A second model learns what sets the suspects apart, class and earlier shortcuts held equal. It
   cannot go by the class, so what it learns is the shortcut; its margin is the stage's column.
3. The stage stands if the second model tells unseen suspects from the rest (`consistency`) and what
   it tells predicts the class (`strength`): their product is the `evidence`. Samples that are just
   hard share no visible property, so there it is small, peeling ends, and on clean data no stage
   stands at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.ranking.balance import Flags, contrast_weights, neutral_weights
from sebra.ranking.crossfit import HeadJudge, Judge, NetworkJudge
from sebra.ranking.noise import SUSPECT, NoiseEstimate, estimate_noise, noise_among
from sebra.ranking.ranking import Monitor, Ranker, RankResult
from sebra.settings import Modes, StepConfig
from sebra.values import check

Floats = npt.NDArray[np.float64]
_EARLIER_SHARE = 0.5  # of the margins of stages before the last, in the order inside a pattern
_EASY_SHARE = 0.3  # of the first model's margin in a stage's column: it steadies the order
_AS_WELL = 0.05  # the most by which strength and the first model's accuracy differ, of the latter


@dataclass(frozen=True)
class PeelConfig(StepConfig):
    """Settings of balanced peeling.

    stages: the most that are looked for. evidence: what a stage must reach to stand. doubt: the
    share of it that may lack where the candidate tells the class as well as the first model does:
    then the model goes by it, while on clean data it tells the class better. least: the fewest
    suspects of a class that are worth a stage. folds: how many parts the samples are cut into for
    held-out predictions. parts: ranks inside a pattern of shortcuts are cut into at most this many
    buckets. least_noise: from this share of likely mislabelled samples (`noise`) on, each counts
    the less in finding shortcuts the likelier it is wrong, which is estimated anew with every
    shortcut found; below it they are taken for hard but right. penalty, penalty_contrast: on the
    weights of heads, of the first and of the second model. steps: how
    long networks over images are trained. beta: of their u weighting, as in the paper's ranking.
    """

    MODES: ClassVar[Modes] = {
        "finetune": {"folds": 3},
        "scratch": {"folds": 3, "steps": 400, "optimizer": "adam", "lr": 1e-3, "batch": 64},
    }

    stages: int = 4
    evidence: float = 2 / 3
    doubt: float = 0.025
    least: int = 8
    folds: int = 5
    parts: int = 10
    least_noise: float = 0.02
    penalty: float = 3e-3
    penalty_contrast: float = 1e-3
    steps: int = 210
    beta: float = 1.25

    def __post_init__(self) -> None:
        checks = {
            "stages": 1 <= self.stages <= 8,
            "evidence": 0 < self.evidence <= 1,
            "doubt": 0 <= self.doubt < 1,
            "least": self.least >= 1,
            "folds": 2 <= self.folds <= 20,
            "parts": self.parts >= 1,
            "penalty": self.penalty > 0,
            "penalty_contrast": self.penalty_contrast > 0,
            "least_noise": 0 <= self.least_noise <= 1,
            "steps": self.steps >= 1,
            "beta": self.beta > 0,
            "optimizer": self.optimizer in ("sgd", "adam", "adamw"),
            "lr": self.lr > 0,
            "batch": self.batch >= 0,
            "crop": 0 < self.crop <= 1,
        }
        check(self, checks)


@dataclass(frozen=True)
class Stage:
    """One candidate shortcut. margin: above zero for samples that follow it."""

    margin: Floats
    easy: Floats  # margin of the first model: how easily the class was told
    accuracy: float  # of the first model, weighted
    consistency: float
    strength: float
    noise: Floats  # how likely each label is wrong, given the shortcuts before this one

    @property
    def follows(self) -> npt.NDArray[np.bool_]:
        return self.margin > 0

    @property
    def evidence(self) -> float:
        return self.consistency * self.strength


class PeelRanker(Ranker[PeelConfig]):
    """Ranks by the shortcuts a sample follows, stronger ones first."""

    config_class: ClassVar[type[PeelConfig]] = PeelConfig

    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult:
        cfg = self.config
        given = task.targets.cpu().numpy().astype(np.int64)
        estimate = estimate_noise(task) if cfg.least_noise < 1 else None
        noise = self._noise(estimate, len(given))
        judge: Judge
        if task.inputs.is_image or task.inputs.is_text:
            judge = NetworkJudge(task, session, cfg)
        else:
            judge = HeadJudge(task, cfg.folds, (cfg.penalty, cfg.penalty_contrast))
        found: list[Stage] = []
        tried: list[Stage] = []
        while len(found) < cfg.stages:
            stage = self._stage(judge, session, given, noise, found, len(tried) + 1)
            tried.append(stage)
            follows = torch.from_numpy(stage.follows).to(task.device)
            monitor.round(len(tried) - 1, None, float("nan"), follows)
            if not self._stands(stage, given):
                break
            found.append(stage)
        _explain(session, found, tried, self._why_not(tried[0]))
        return self._result(found, tried, given, estimate)

    def _noise(self, estimate: NoiseEstimate | None, n: int) -> Floats:
        """How likely each label is wrong, as far as can be told before any shortcut is known."""
        if estimate is None or estimate.flagged.mean() < self.config.least_noise:
            return np.zeros(n)
        return np.where(estimate.flagged, estimate.noise, 0.0)

    def _stage(
        self,
        judge: Judge,
        session: Session,
        labels: npt.NDArray[np.int64],
        noise: Floats,
        found: list[Stage],
        number: int,
    ) -> Stage:
        before = np.array([s.follows for s in found], bool).reshape(-1, len(labels)).T

        def compute() -> dict[str, Tensor]:
            y = torch.from_numpy(labels)
            wrong = noise
            if found and noise.any():
                session.enter("noise")  # its parts are not those of the stage
                try:
                    wrong = _noise_given(judge, before, labels, noise)
                finally:
                    session.leave()
            trust = 1 - wrong
            weights = neutral_weights(before, labels, trust)
            first = judge.tell_class(y, torch.from_numpy(weights))
            easy = margins(first, y)
            right = (easy > 0).numpy()
            seems = torch.where(easy > 0, y, first.argmax(1))
            apart = contrast_weights(before, right, labels, trust)
            if apart.sum() == 0:
                second = first
            else:
                second = judge.tell_apart(seems, torch.from_numpy(apart))
            return {
                "easy": easy,
                "told": margins(second, y),
                "agrees": (second.argmax(1) == seems).double(),
                "apart": torch.from_numpy(apart),
                "weights": torch.from_numpy(weights),
                "noise": torch.from_numpy(wrong),
            }

        fit = {k: v.double().numpy() for k, v in session.once(f"stage_{number}", compute).items()}
        told, easy, weights = fit["told"], fit["easy"], fit["weights"]
        return Stage(
            margin=told + _EASY_SHARE * easy * told.std() / max(float(easy.std()), 1e-12),
            easy=easy,
            accuracy=_mean(easy > 0, weights),
            consistency=_mean(fit["agrees"], fit["apart"]),
            strength=_mean(told > 0, weights),
            noise=fit["noise"],
        )

    def _stands(self, stage: Stage, labels: npt.NDArray[np.int64]) -> bool:
        cfg = self.config
        broken = np.bincount(labels, ~stage.follows * (1 - stage.noise))
        return stage.evidence >= self._wanted(stage) and bool((broken >= cfg.least).sum() >= 2)

    def _wanted(self, stage: Stage) -> float:
        """The evidence that a stage must reach to stand."""
        as_well = abs(stage.strength - stage.accuracy) <= _AS_WELL * stage.accuracy
        return self.config.evidence * (1 - self.config.doubt * as_well)

    def _why_not(self, stage: Stage) -> str:
        """Why a candidate does not stand, for the user."""
        if stage.evidence < self._wanted(stage):
            return (
                "hard samples share no property that can be seen in new ones, evidence "
                f"{stage.evidence:.2f}"
            )
        if stage.noise.any():
            return (
                f"evidence {stage.evidence:.2f}, but too few samples break it or they look "
                "mislabelled; --set least_noise=1 takes all labels as right"
            )
        return f"evidence {stage.evidence:.2f}, but too few samples of two classes break it"

    def _is_certain(self, stage: Stage) -> bool:
        return stage.evidence >= self.config.evidence

    def _result(
        self,
        found: list[Stage],
        tried: list[Stage],
        given: npt.NDArray[np.int64],
        estimate: NoiseEstimate | None,
    ) -> RankResult:
        noise = tried[-1].noise
        certain = 1 + max((k for k, s in enumerate(found) if self._is_certain(s)), default=-1)
        pattern = _patterns(found[:certain], noise)
        if found:
            # Inside a pattern: how far a sample follows the last shortcut and doubtful ones, less
            # so the earlier ones, which mends where a margin was cut wrongly, and how easily its
            # class is told once they are all neutral: by all that is left.
            shares = [1.0 if k >= certain - 1 else _EARLIER_SHARE for k in range(len(found))]
            parts = [(w, s.margin) for w, s in zip(shares, found, strict=True)]
            parts.append((1.0, tried[-1].easy))
            score = np.sum([w * _standing(values, pattern, given) for w, values in parts], axis=0)
        else:  # likely mislabelled ones are placed as members of the class they look like
            score = np.where(noise > 0, np.abs(tried[0].easy), tried[0].easy)
        bucket = _parts(pattern, score, given, self.config.parts)
        details: dict[str, Any] = {
            "peeled": [_figures(s) for s in found],
            "refused": _figures(tried[-1]) if len(tried) > len(found) else None,
        }
        return RankResult(
            bucket,
            score,
            stages={f"stage_{k}": _share(s.margin) for k, s in enumerate(found, 1)},
            level=(1 << certain) - 1 - (pattern >> 1) if certain else None,
            levels=1 << certain,
            noise=estimate,
            details={k: v for k, v in details.items() if v is not None},
        )


def _patterns(found: list[Stage], noise: Floats) -> npt.NDArray[np.int64]:
    """The shortcuts a sample follows as a number, smaller where it follows more or stronger ones.

    Samples that follow none and are more likely wrong than right stand before all others that break
    the strongest shortcut: they break it too, but the tail belongs to those labelled right.
    """
    pattern = np.zeros(len(noise), dtype=np.int64)
    for stage in found:
        pattern = 2 * pattern + ~stage.follows
    last = (1 << len(found)) - 1
    wrong = (pattern == last) & (noise >= SUSPECT) & (last > 0)
    return np.where(wrong, last, 2 * pattern)


def _noise_given(
    judge: Judge, before: Flags, labels: npt.NDArray[np.int64], noise: Floats
) -> Floats:
    """How likely each label is wrong, once it is known which shortcuts (`before`) a sample follows.

    A mislabelled sample breaks every shortcut of the class it is given, but so does a right one
    that has none of them; what still tells them apart shows once the shortcuts are neutralised.
    """
    breaks, keeps = np.logical_not(before.any(axis=1)), np.asarray(before.all(axis=1))
    trust = np.where(breaks, 1 - noise, 1.0)
    weights = neutral_weights(before, labels, trust)
    logits = judge.tell_class(torch.from_numpy(labels), torch.from_numpy(weights))
    return noise_among(logits.double().numpy(), labels, np.asarray(breaks), keeps)


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """The logit of the label less the largest of the others: above 0 where the label is told."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return own - others


def _share(margin: Floats) -> Floats:
    """A margin as a number from 0 to 1, one half where it is zero."""
    out: Floats = 1 / (1 + np.exp(-np.clip(margin, -40, 40)))
    return out


def _mean(values: Any, weights: Floats) -> float:
    total = float(weights.sum())
    return float((np.asarray(values, dtype=np.float64) * weights).sum() / total) if total else 0.0


def _figures(stage: Stage) -> dict[str, float]:
    return {
        "evidence": round(stage.evidence, 4),
        "consistency": round(stage.consistency, 4),
        "strength": round(stage.strength, 4),
        "accuracy": round(stage.accuracy, 4),
        "followed_by": round(float(stage.follows.mean()), 4),
    }


def _parts(
    pattern: npt.NDArray[np.int64], score: Floats, labels: npt.NDArray[np.int64], parts: int
) -> npt.NDArray[np.int64]:
    """Buckets: by pattern, and inside a class and pattern by score, in parts of like size."""
    sub = np.zeros(len(labels), dtype=np.int64)
    for here in _alike(pattern, labels):
        place = np.empty(len(here), dtype=np.int64)
        place[np.argsort(-score[here], kind="stable")] = np.arange(len(here))
        sub[here] = place * min(parts, len(here)) // len(here)
    return pattern * parts + sub


def _standing(
    values: Floats, pattern: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]
) -> Floats:
    """Values in standard deviations from the mean of their class and pattern."""
    out = np.zeros(len(values))
    for here in _alike(pattern, labels):
        spread = max(float(values[here].std()), 1e-12)
        out[here] = (values[here] - values[here].mean()) / spread
    return out


def _alike(
    pattern: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.int64]]:
    """The samples of every class and pattern."""
    key = pattern * (labels.max() + 1) + labels
    yield from (np.flatnonzero(key == k) for k in np.unique(key))


def _explain(session: Session, found: list[Stage], tried: list[Stage], why: str) -> None:
    if found:
        shares = ", ".join(f"{s.follows.mean():.0%}" for s in found)
        noun = "shortcut" if len(found) == 1 else "shortcuts"
        session.note(f"peeling: {len(found)} {noun} found, followed by {shares} of the samples")
    else:
        session.note(f"peeling: no shortcut found ({why}); the ranking is from easy to hard")
    wrong = round(float(tried[-1].noise.sum()))
    if wrong:
        session.note(f"peeling: about {wrong} mislabelled samples, which count less the likelier")
