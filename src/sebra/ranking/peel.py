"""Balanced peeling: find the strongest shortcut, neutralise it by balancing, find the next.

The faithful method takes learned samples away. In what is left the shortcut predicts the opposite
class, so its reverse is learned next and a second shortcut never gets a rank of its own. Here each
stage trains on all samples, weighted so that the shortcuts found so far say nothing of the class.

A stage has three steps, all held out: a model learns the class under those weights, and those it
gets wrong are suspects; a second one learns what sets them apart (`candidate.py`); and the stage
stands if they are more than the hard or mislabelled ones of their class (`evidence.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.ranking.balance import Flags, Floats, Ints, neutral_weights
from sebra.ranking.candidate import told_plainly
from sebra.ranking.crossfit import HeadJudge, Judge
from sebra.ranking.noise import SUSPECT, NoiseEstimate, estimate_noise, noise_among
from sebra.ranking.noise_heads import FOLDS
from sebra.ranking.order import parts_of, standing
from sebra.ranking.patterns import Reading, figures_of, joined, share_of
from sebra.ranking.ranking import Monitor, Ranker, RankResult
from sebra.ranking.views import COVERED, Sight, centred, evidence_in, strongest
from sebra.settings import Modes, StepConfig
from sebra.values import check

_EARLIER_SHARE = 0.5  # of the margins of stages before the last, in the order inside a pattern


@dataclass(frozen=True)
class PeelConfig(StepConfig):
    """Settings of balanced peeling.

    stages: the most that are looked for. chance: of a false alarm, that the first stage may have
    and stand, its square for the second and so on: mistakes of the earlier ones look like a pattern
    too. folds: for held-out predictions of networks. parts: buckets of a pattern at most.
    least_noise: from this share of likely mislabelled samples (`noise`) on, each counts the less
    the more likely it is wrong; below it they are taken for hard but right. penalty,
    penalty_contrast: on the weights of heads, of the first and of the second model. steps: of
    networks over images. beta: of their u weighting, as in the paper's ranking.
    """

    MODES: ClassVar[Modes] = {
        "finetune": {"folds": 3},
        "scratch": {"folds": 3, "steps": 400, "optimizer": "adam", "lr": 1e-3, "batch": 64},
    }

    stages: int = 4
    chance: float = 0.01
    folds: int = FOLDS
    parts: int = 10
    least_noise: float = 0.02
    penalty: float = 3e-3
    penalty_contrast: float = 1e-3
    steps: int = 210
    beta: float = 1.25

    def __post_init__(self) -> None:
        checks = {
            "stages": 1 <= self.stages <= 8,
            "chance": 0 < self.chance < 1,
            "folds": 2 <= self.folds <= 20,
            "parts": self.parts >= 1,
            "penalty": self.penalty > 0,
            "penalty_contrast": self.penalty_contrast > 0,
            "least_noise": 0 <= self.least_noise <= 1,
            "steps": self.steps >= 1,
        }
        check(self, checks)


@dataclass(frozen=True)
class Stage:
    """One candidate pattern. margin: above zero for samples that follow it."""

    margin: Floats
    easy: Floats  # margin of the first model: how easily the class was told
    chance: float  # of a false alarm
    noise: Floats  # how likely each label is wrong, given the patterns before this one
    reading: Reading | None = None  # tells it of other samples
    view: str | None = None  # where it is seen; None: in all features

    @property
    def follows(self) -> Flags:
        return self.margin > 0


class PeelRanker(Ranker[PeelConfig]):
    """Ranks by the patterns a sample follows, stronger ones first."""

    config_class: ClassVar[type[PeelConfig]] = PeelConfig
    names_patterns: ClassVar[bool] = True
    usual_mode: ClassVar[str | None] = "features"  # finds more than networks do, in less time

    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult:
        cfg = self.config
        given = task.targets.cpu().numpy().astype(np.int64)
        estimate = estimate_noise(task) if cfg.least_noise < 1 else None
        noise = self._noise(estimate, len(given))
        sight = Sight.of(task, session, cfg)
        judge = sight.judge
        found: list[Stage] = []
        tried: list[Stage] = []
        while len(found) < cfg.stages:
            plain = tried[0].easy if tried else None
            stage = self._stage(sight, session, given, noise, found, plain, len(tried) + 1)
            tried.append(stage)
            follows = torch.from_numpy(stage.follows).to(task.device)
            monitor.round(len(tried) - 1, None, float("nan"), follows)
            if stage.chance > cfg.chance ** len(tried) or stage.follows.all():
                break
            found.append(stage)
        found = _by_strength(found, tried[0].easy, given) if found else found
        _explain(session, found, tried)
        result = self._result(found, tried, given, estimate)
        if not found:
            return result
        # Networks are not trained once more: their first model is a plain one.
        heads = isinstance(judge, HeadJudge)
        right = told_plainly(judge, given) if heads else found[0].easy > 0
        figures = [figures_of(s.follows, right, given, s.chance, s.view) for s in found]
        readings = [s.reading for s in found if s.reading is not None]
        return replace(
            result,
            details={**result.details, "patterns": figures},
            patterns=joined(readings, sight.width, sight.atoms),
        )

    def _noise(self, estimate: NoiseEstimate | None, n: int) -> Floats:
        """How likely each label is wrong, as far as can be told before any pattern is known."""
        if estimate is None or estimate.flagged.mean() < self.config.least_noise:
            return np.zeros(n)
        return np.where(estimate.flagged, estimate.noise, 0.0)

    def _stage(
        self,
        sight: Sight,
        session: Session,
        labels: Ints,
        noise: Floats,
        found: list[Stage],
        plain: Floats | None,
        number: int,
    ) -> Stage:
        before = np.array([s.follows for s in found], bool).reshape(-1, len(labels)).T

        def compute() -> dict[str, Tensor]:
            wrong = noise
            if found and noise.any():
                session.enter("noise")  # its parts are not those of the stage
                try:
                    wrong = _noise_given(sight.judge, before, labels, noise)
                finally:
                    session.leave()
            heard = np.asarray(before.all(axis=1))
            views = [judge for judge, _ in sight.views]
            trust, chance = 1 - wrong, self.config.chance
            kept = strongest(sight.judge, views, before, labels, trust, heard, chance, plain)
            return {**kept, "noise": torch.from_numpy(wrong)}

        fit = session.once(f"stage_{number}", compute)
        values = {k: v.double().numpy() for k, v in fit.items()}
        evidence, margin = evidence_in(fit), values["margin"]
        covers = evidence.covers(COVERED)
        top = np.full(len(covers), np.nan)
        if covers.any():  # samples of classes without the pattern do not break it
            top[~covers] = max(float(margin[covers[labels]].max()), 1e-6)
            margin = np.where(covers[labels], margin, top[labels])
        name, reading = None, None
        if "head" in fit:
            judge, view = sight.at(int(fit["view"]))
            name, columns = view.name or None, list(view.columns)
            told = fit["head"], fit["thresholds"], torch.from_numpy(top)
            reading = Reading(columns, judge.shift, judge.scale, *told, against=name is None)
        chance = evidence.chance(1 + len(sight.views))
        return Stage(margin, values["easy"], chance, values["noise"], reading, name)

    def _result(
        self, found: list[Stage], tried: list[Stage], given: Ints, estimate: NoiseEstimate | None
    ) -> RankResult:
        noise, levels = tried[-1].noise, 1 << len(found)
        pattern = _patterns(found, noise)
        if found:
            # Inside a pattern: how far a sample follows the last one, less so the earlier ones,
            # which mends where a margin was cut wrongly, and how easily its class is told once
            # they are all neutral: by all that is left.
            shares = [_EARLIER_SHARE] * (len(found) - 1) + [1.0]
            parts = [(w, s.margin) for w, s in zip(shares, found, strict=True)]
            parts.append((1.0, tried[-1].easy))
            score = np.sum([w * standing(values, pattern, given) for w, values in parts], axis=0)
        else:  # likely mislabelled ones are placed as members of the class they look like
            score = np.where(noise > 0, np.abs(tried[0].easy), tried[0].easy)
        details = {"refused": {"chance": tried[-1].chance}} if len(tried) > len(found) else {}
        return RankResult(
            parts_of(pattern, score, given, self.config.parts),
            score,
            stages={f"stage_{k}": share_of(s.margin) for k, s in enumerate(found, 1)},
            level=levels - 1 - (pattern >> 1) if found else None,
            levels=levels,
            noise=estimate,
            details=details,
        )


def _by_strength(found: list[Stage], easy: Floats, labels: Ints) -> list[Stage]:
    """The stronger the earlier: by how far the plain model's margin falls where each is broken."""
    every = np.ones(len(labels), dtype=bool)
    follows = [centred(s.follows.astype(np.float64), labels, every) for s in found]
    falls = np.linalg.lstsq(np.array(follows).T, centred(easy, labels, every))[0]
    return [found[k] for k in np.argsort(-falls, kind="stable")]


def _patterns(found: list[Stage], noise: Floats) -> Ints:
    """The shortcuts a sample follows as a number, smaller where it follows more or stronger ones.

    Of those that follow none the likely mislabelled stand first: the tail is for right labels.
    """
    pattern = np.zeros(len(noise), dtype=np.int64)
    for stage in found:
        pattern = 2 * pattern + ~stage.follows
    last = (1 << len(found)) - 1
    wrong = (pattern == last) & (noise >= SUSPECT) & (last > 0)
    return np.where(wrong, last, 2 * pattern)


def _noise_given(judge: Judge, before: Flags, labels: Ints, noise: Floats) -> Floats:
    """How likely each label is wrong, once it is known which shortcuts (`before`) a sample follows:
    what tells mislabelled ones from right ones that break them shows once they are neutralised."""
    breaks, keeps = np.logical_not(before.any(axis=1)), np.asarray(before.all(axis=1))
    trust = np.where(breaks, 1 - noise, 1.0)
    weights = neutral_weights(before, labels, trust)
    logits = judge.tell_class(torch.from_numpy(labels), torch.from_numpy(weights))
    return noise_among(logits.double().numpy(), labels, np.asarray(breaks), keeps)


def _explain(session: Session, found: list[Stage], tried: list[Stage]) -> None:
    if found:
        shares = ", ".join(f"{s.follows.mean():.0%}" for s in found)
        chances = ", ".join(f"{s.chance:.1g}" for s in found)
        noun = "pattern" if len(found) == 1 else "patterns"
        said = f"{len(found)} {noun} found, followed by {shares} of the samples"
        session.note(f"peeling: {said} (chance of a false alarm {chances})")
    else:
        said = "no pattern found: hard samples share nothing but being hard or mislabelled"
        chance = f"(chance of a false alarm {tried[0].chance:.2g})"
        session.note(f"peeling: {said} {chance}; the ranking goes from easy to hard")
    wrong = round(float(tried[-1].noise.sum()))
    if wrong:
        session.note(
            f"peeling: about {wrong} samples look mislabelled; the more likely a label is wrong, "
            "the less its sample counts in finding patterns"
        )
