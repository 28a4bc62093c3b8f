"""Self-guided bias ranking: upweight, train, select, rank (paper, section 3 and Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from sebra.engine.session import Session
from sebra.engine.step import (
    TrainStep,
    drawn,
    label_probability,
    make_optimizer,
    set_lr,
    shuffled,
    train_epoch,
)
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.ranking.formulas import is_learned, p_critical_of, upweight, weighted_loss
from sebra.ranking.pace import Pace, Snapshot
from sebra.ranking.ranking import Monitor, Ranker, RankResult
from sebra.settings import Modes, StepConfig, setting
from sebra.values import check

FULL, REMAINING = "full", "remaining"  # kinds of draws
_COLLAPSED_SHARE = 0.5  # learned; below it a note says that the ranking says little
_FAIR_EPOCHS = 5  # after these, a single bucket will not split by waiting longer
_SAME_U = 1e-6
MAX_SHARE = 0.25  # of all samples that a round may learn where `resolution` is auto


@dataclass(frozen=True)
class SebraConfig(StepConfig):
    """Settings of the ranking; defaults are the paper's (Table 7, first data set)."""

    # Features are standardised and divided by the root of their dimension.
    MODES: ClassVar[Modes] = {
        "features": {"epochs": 15, "enough": 0.7, "lr": 0.15, "weight_decay": 0.0, "batch": 0},
        "scratch": {
            "p_critical": 0.9,
            "epochs": 20,
            "optimizer": "adam",
            "lr": 3e-4,
            "weight_decay": 1e-4,
            "batch": 64,
        },
    }

    p_critical: float = setting(
        0.75, "higher asks for more certainty before a sample counts as learned: later, finer ranks"
    )
    lam: float | None = setting(
        None, "the paper's λ, another way to give `p_critical` (its upper root)"
    )
    beta: float = setting(
        1.25, "smaller looks more at what is almost learned already (u = p^(1/beta))"
    )
    epochs: int = setting(50, "R, the largest rank: more ranks finer and takes longer")
    enough: float = setting(
        0.0,
        "after R epochs go on, for R more at most, until this share is learned; 0 stops as the "
        "paper does",
    )
    draws: str = setting(
        "full",
        "samples per epoch: `full` as many as there are, with replacement (the published runs); a "
        "number such as 0.5 that share of them (faster, coarser); `remaining` each unlearned one",
    )
    resolution: str = setting(
        "auto",
        "`epoch` selects once per epoch, as the paper does; `auto` more often where an epoch would "
        "learn a quarter of all samples at once, with larger steps while nobody is learned",
    )
    momentum: float = 0.1
    weight_decay: float = 1e-3
    use_u: bool = setting(True, "without it nobody is weighted up (ablation)")
    use_v: bool = setting(True, "without it nobody is set aside: plain training (ablation)")

    def __post_init__(self) -> None:
        check(self, {"draws": self.draws == REMAINING or 0 < draws_share(self.draws) <= 1})
        if self.lam is not None:
            object.__setattr__(self, "p_critical", p_critical_of(self.lam, self.beta))


class SelfGuidedRanker(Ranker[SebraConfig]):
    """Ranks by the order in which samples are learned when learned ones are set aside."""

    config_class = SebraConfig

    def rank(self, task: Task, session: Session, monitor: Monitor) -> RankResult:
        cfg = self.config
        run = _Rounds(cfg, replace(task, augment=Augment(cfg.flip, cfg.crop)), monitor)
        rounds = cfg.epochs * (4 if run.pace.adaptive else 1) * (2 if cfg.enough else 1)
        for t in session.phase("rank", rounds, run.state):
            loss = run.round(t)
            monitor.round(t, run.network, loss, run.bucket >= 0)
            if self._done(run):
                break
        learned = float((run.bucket >= 0).float().mean())
        run.close()
        collapsed = self._explain(run, learned, session)
        return RankResult(
            run.bucket.cpu().numpy(),
            run.score.cpu().numpy(),
            run.p.cpu().numpy(),
            details={
                "rounds": run.pace.rounds,
                "epochs": run.pace.epochs_spent,
                "learned": learned,
            },
            collapsed=f"no ranking: {collapsed}" if collapsed else "",
        )

    def _done(self, run: _Rounds) -> bool:
        learned, spent = run.bucket >= 0, run.pace.epochs_spent + 1e-6
        if bool(learned.all()) or spent > 2 * self.config.epochs:
            return True
        if spent <= self.config.epochs:
            return False
        return not self.config.use_v or float(learned.float().mean()) >= self.config.enough

    def _explain(self, run: _Rounds, learned: float, session: Session) -> str:
        """Notes what a person should know of the ranking; returns why there is none, if so."""
        cfg, pace = self.config, run.pace
        collapsed = self._collapsed(run, learned)
        spread = float(run.score.max() - run.score.min())
        if collapsed and spread > _SAME_U and (cfg.epochs < _FAIR_EPOCHS or not cfg.use_v):
            # In a trial of a few epochs nobody may be learned yet, and plain training has no pace
            # that could mend it; u still has an order to give.
            session.note(
                "all samples are in one bucket, ordered by the network's confidence alone; "
                f"{collapsed}"
            )
            collapsed = ""
        elif learned < _COLLAPSED_SHARE and not collapsed:
            session.note(
                f"only {learned:.0%} of the samples were ever learned, all others are in one "
                "bucket: do not rely on this ranking; raise the rate (--set lr=…) or --set epochs=…"
            )
        if pace.epochs_spent > cfg.epochs + 1:
            session.note(
                f"went on for {pace.epochs_spent:.0f} epochs, since fewer than {cfg.enough:.0%} of "
                f"the samples were learned in {cfg.epochs}; --set enough=0 stops there"
            )
        if pace.shortest:
            session.note(
                f"a whole epoch would have learned more than {MAX_SHARE:.0%} of the samples "
                "at once, so they were selected several times per epoch (shortest round "
                f"{pace.shortest} of {pace.full} steps); resolution=epoch selects once per epoch"
            )
        return collapsed

    def _collapsed(self, run: _Rounds, learned: float) -> str:
        """What to say of a single bucket: none was learned, or all in the same round."""
        if len(run.bucket) < 2 or bool((run.bucket != run.bucket[0]).any()):
            return ""
        cfg = self.config
        if learned == 0:
            return (
                f"in {run.pace.epochs_spent:.0f} epochs not one of the "
                f"{len(run.bucket)} samples reached p_critical = {cfg.p_critical:g}; raise the "
                f"rate (--set lr=…, it is {cfg.lr:g}) or --set epochs=…, or lower "
                "--set p_critical=…"
            )
        finer = "--set resolution=auto, or " if cfg.resolution == "epoch" and cfg.use_v else ""
        return (
            f"all {len(run.bucket)} samples were learned in the same round; take "
            f"{finer}a lower rate (--set lr=…, it is {cfg.lr:g}), or raise --set p_critical=…"
        )


def draws_share(draws: str) -> float:
    """Draws of an epoch as a share of the samples; NaN of what is no number."""
    if draws == FULL:
        return 1.0
    try:
        return float(draws)
    except ValueError:
        return float("nan")


def batch_for(samples: int) -> int:
    """A batch that keeps an epoch at about 64 steps, between 128 and 4,096."""
    return 1 << min(max(round(samples / 64).bit_length() - 1, 7), 12)


class _Rounds:
    """The state that the rounds of the algorithm advance."""

    def __init__(self, cfg: SebraConfig, task: Task, monitor: Monitor) -> None:
        self.cfg, self.task = cfg, task
        n = len(task)
        self.network = task.network()
        self.network.train()
        self.optimizer = make_optimizer(
            self.network, cfg.optimizer, cfg.lr, cfg.weight_decay, cfg.momentum
        )
        self.generator = task.generator()
        self.bucket = torch.full((n,), -1, dtype=torch.long, device=task.device)
        self.p = torch.zeros(n, device=task.device)  # of the label, as of the selection
        self.batch = min(cfg.batch or batch_for(n), n)
        adaptive = cfg.resolution == "auto" and cfg.use_v
        self.pace = Pace(-(-n // self.batch), n, MAX_SHARE, cfg.lr, adaptive)
        self.step = TrainStep(
            self.network, self.optimizer, self._loss, task.device, randoms=task.randoms, task=task
        )
        self.state: dict[str, Any] = {
            "network": self.network,
            "optimizer": self.optimizer,
            "generator": self.generator,
            "bucket": self.bucket,
            "p": self.p,
            "pace": self.pace.state,
            "monitor": monitor,
        }

    @property
    def score(self) -> Tensor:
        """u as of the selection."""
        return upweight(self.p, self.cfg.beta)

    def _loss(self, index: Tensor, rand: Tensor) -> Tensor:
        logits = self.network(self.task.batch(index, rand))
        return weighted_loss(logits, self.task.targets[index], self.cfg.beta, self.cfg.use_u)

    def round(self, t: int) -> float:
        """Train on the unlearned, select, rank; in smaller steps again if it learned too much."""
        set_lr(self.optimizer, self.cfg.lr * self.pace.rate_share)
        everyone = torch.arange(len(self.task))
        while True:
            left = (self.bucket < 0).nonzero().squeeze(1)
            pool = left.cpu() if self.cfg.use_v else everyone
            before = Snapshot(self.network, self.optimizer) if self.pace.adaptive else None
            order = self._order(pool)
            whole = len(order)
            order = order[: self.pace.steps]
            loss = train_epoch(self.step, order, self.generator)
            p = label_probability(self.network, self.task, left)
            learned = is_learned(p, self.cfg.p_critical)
            count = int(learned.sum())
            if before is None or self.pace.accepts(count, self.optimizer):
                break
            before.restore()
        self.pace.spend(len(order), whole)
        self.bucket[left[learned]] = t
        self.p[left] = p
        self.pace.lengthen(count, self.optimizer)
        patience = max(2, self.cfg.epochs // 4)
        if self.pace.rounds >= patience and bool((self.bucket < 0).all()):
            self.pace.hasten(self.optimizer)
        return loss

    def _order(self, pool: Tensor) -> Tensor:
        if self.cfg.draws == REMAINING:
            return shuffled(pool, self.batch, self.generator)
        draws = round(draws_share(self.cfg.draws) * len(self.task))
        return drawn(pool, draws, self.batch, self.generator)

    def close(self) -> None:
        """Whatever was never learned forms the last bucket, ordered the same way."""
        self.bucket[self.bucket < 0] = self.pace.rounds
