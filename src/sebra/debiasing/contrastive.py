"""The contrastive objective (paper, section 3.3) and its training; `sebra` and `stages` use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra import processes
from sebra.debiasing.contrastive_loss import contrastive_loss
from sebra.debiasing.method import Guide, Help, TrainConfig, every_sample, make_trainer
from sebra.debiasing.pairs import Ranges, in_pairs, rank_partners
from sebra.engine.networks import Network
from sebra.engine.passes import batches_of
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.loading.augment import Augment
from sebra.ranking.noise import SUSPECT
from sebra.settings import Modes

_LEAST_P = 0.05  # lower ones weigh alike: the lowest of all are outliers and wrong labels
_LEAST_WEIGHT = 1e-6
_NOISY = 0.05  # share of flagged samples
_STRICT = 2.0  # power of the chance that a label is right


@dataclass(frozen=True)
class ContrastiveConfig(TrainConfig):
    """The objective L_con + gamma·CE and the choices the paper leaves open.

    tau: temperature. positives, negatives: M and N per anchor. rank_gap: how many buckets later a
    positive must be. hard: a positive weighs (-log p)^hard, p of its label when it was ranked, and
    less where many labels look wrong and its own does; 0 draws all alike, as the paper does.
    ce_on: which samples the cross-entropy sees: `anchor`, `positive` or `both`. pair_gradient:
    whether gradients flow through positives and negatives. denominator: `anchor` as in the
    formula, or `batch`. negatives_from: `fresh` ones are drawn and embedded for every anchor;
    with `anchors` batches hold two anchors of each bucket, which serve each other: the same
    chances, and a third of the forward passes less.
    """

    # Over features the gap is half of the ranking's epochs: a positive that breaks what its anchor
    # follows.
    MODES: ClassVar[Modes] = {
        "features": {"gamma": 4.0, "rank_gap": 8, "hard": 2.0, "denominator": "anchor"},
        "scratch": {"ce_on": "both"},
    }

    gamma: float = 2.0
    tau: float = 0.1
    positives: int = 1
    negatives: int = 1
    rank_gap: int = 5
    hard: float = 0.0
    ce_on: str = "positive"
    pair_gradient: bool = False
    denominator: str = "batch"
    negatives_from: str = "fresh"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shares_anchors and (self.negatives != 1 or self.batch % _pairs_unit()):
            raise UsageError(
                "--set negatives_from=anchors: needs one negative per anchor (--set negatives=1) "
                f"and a batch that is a multiple of {_pairs_unit()} (--set batch=…)"
            )

    @property
    def shares_anchors(self) -> bool:
        """Whether anchors are each other's negatives."""
        return self.negatives_from == "anchors"

    @property
    def weighs_noise(self) -> bool:
        return self.hard > 0


def partners_of(
    targets: Tensor,
    bucket: Tensor,
    guide: Guide,
    config: ContrastiveConfig,
    gap: int,
    session: Session,
) -> tuple[Ranges, Ranges]:
    """Positives and negatives by bucket, positives weighted where the settings say so."""
    positives, negatives = rank_partners(targets, bucket, gap)
    if config.hard:
        if guide.p is None:
            session.note("hard: the ranking keeps no p; positives weigh by their noise alone")
        positives = positives.weighted(positive_weights(guide, config.hard))
    return positives, negatives


def positive_weights(guide: Guide, hard: float) -> Tensor:
    """How much a sample weighs as a positive: the harder, the more, if its label seems right.

    A ranking that stopped before everyone was learned leaves a wide last bucket, in which what the
    shortcut misleads has by far the lowest p. Few samples look mislabelled in clean data, mostly
    those that break every shortcut: noise counts in full only from `_NOISY` flagged samples on.
    """
    weights = torch.ones_like(guide.spuriosity)
    if guide.p is not None:
        weights = guide.p.clamp(_LEAST_P, 1 - _LEAST_WEIGHT).log().neg() ** hard
    if guide.noise is not None:
        flagged = float((guide.noise >= SUSPECT).float().mean())
        strength = _STRICT * min(1.0, flagged / _NOISY)
        weights = weights * (1 - guide.noise).clamp_min(0) ** strength
    return weights.clamp_min(_LEAST_WEIGHT)


def fit_pairs(
    task: Task,
    help: Help,
    session: Session,
    config: ContrastiveConfig,
    positives: Ranges,
    negatives: Ranges,
    order: Callable[[torch.Generator], Tensor] | None = None,
) -> Network:
    """Trains with given partners; `order` draws the anchors (default: every sample once)."""
    task = replace(task, augment=Augment(config.flip, config.crop))
    network = task.network(hidden=config.hidden)
    loss = PairLoss(task, network, config, positives, negatives)
    trainer = make_trainer(task, network, config, loss, randoms=loss.randoms)
    if order is None and config.shares_anchors:
        order = _anchors_in_pairs(len(task), config.batch, negatives)
    draw = order or (lambda generator: every_sample(task, config, generator))
    trainer.run(session, help.selector, lambda _: draw(trainer.generator))
    help.selector.restore(network)
    return network


def _pairs_unit() -> int:
    """Batches of a multiple of this are shared by the processes without cutting a pair."""
    return 2 * processes.size()


def _anchors_in_pairs(
    count: int, batch: int, negatives: Ranges
) -> Callable[[torch.Generator], Tensor]:
    """Every sample once (where a bucket is odd, one twice), in batches of pairs."""
    everyone, unit = torch.arange(count), _pairs_unit()

    def draw(generator: torch.Generator) -> Tensor:
        pairs = in_pairs(everyone, negatives, generator)
        return batches_of(pairs, max(unit, min(batch, len(pairs) // unit * unit)))

    return draw


class PairLoss:
    """The objective of one batch of anchors; partners are drawn from the step's random numbers."""

    def __init__(
        self, task: Task, network: Network, config: ContrastiveConfig, pos: Ranges, neg: Ranges
    ) -> None:
        self.task, self.network, self.config = task, network, config
        self.pos, self.neg = pos, neg
        self.fresh = 0 if config.shares_anchors else config.negatives
        m, n = config.positives, self.fresh
        self.randoms = m + n + task.randoms * (1 + m + n)

    def __call__(self, index: Tensor, rand: Tensor) -> Tensor:
        cfg, m, n, a = self.config, self.config.positives, self.fresh, self.task.randoms
        batch = len(index)
        picks, noise = rand[:, : m + n], rand[:, m + n :].reshape(batch, 1 + m + n, a)
        positive = self.pos.draw(index, picks[:, :m])
        z = self._embed(torch.cat([index[:, None], positive], 1), noise[:, : 1 + m])
        anchor, z_positive = z[:, 0], z[:, 1:]
        with torch.set_grad_enabled(cfg.pair_gradient):
            if cfg.shares_anchors:
                z_negative = anchor.view(batch // 2, 2, -1).flip(1).reshape(batch, 1, -1)
            else:
                negative = self.neg.draw(index, picks[:, m:])
                z_negative = self._embed(negative, noise[:, 1 + m :])
        paired = z_positive if cfg.pair_gradient else z_positive.detach()
        con = contrastive_loss(anchor, paired, z_negative, cfg.tau, cfg.denominator)
        return con + cfg.gamma * self._cross_entropy(anchor, z_positive, index)

    def _embed(self, index: Tensor, noise: Tensor) -> Tensor:
        """Embeddings of n x k samples as n x k x d, in one pass."""
        n, k = index.shape
        x = self.task.batch(index.reshape(-1), noise.reshape(n * k, -1))
        return self.network.embed(x).view(n, k, -1)

    def _cross_entropy(self, anchor: Tensor, positive: Tensor, index: Tensor) -> Tensor:
        targets = self.task.targets[index]
        chosen = {
            "anchor": lambda: anchor[:, None],
            "positive": lambda: positive,
            "both": lambda: torch.cat([anchor[:, None], positive], 1),
        }[self.config.ce_on]()
        logits = self.network.classify(chosen.reshape(-1, chosen.shape[-1]))
        repeated = targets[:, None].expand(-1, chosen.shape[1]).reshape(-1)
        return F.cross_entropy(logits.float(), repeated)
