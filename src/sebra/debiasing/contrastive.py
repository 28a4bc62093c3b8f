"""The contrastive objective (paper, section 3.3) and its training; `sebra` and `stages` use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.contrastive_loss import contrastive_loss
from sebra.debiasing.method import Guide, Help, TrainConfig, every_sample, make_trainer
from sebra.debiasing.pairs import Ranges, rank_partners
from sebra.engine.networks import Network
from sebra.engine.passes import training_flags_kept
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.ranking.noise import SUSPECT
from sebra.settings import Modes, setting
from sebra.values import check

_LEAST_P = 0.05  # lower ones weigh alike: the lowest of all are outliers and wrong labels
_LEAST_WEIGHT = 1e-6
_NOISY = 0.05  # share of flagged samples
_STRICT = 2.0  # power of the chance that a label is right


@dataclass(frozen=True)
class ContrastiveConfig(TrainConfig):
    """The objective L_con + gamma·CE and the choices the paper leaves open.

    One positive and one negative per anchor, both taken as constants, as in the published runs.
    """

    # Over features the gap is half of the ranking's epochs: a positive that breaks what its anchor
    # follows.
    MODES: ClassVar[Modes] = {
        "features": {"gamma": 4.0, "rank_gap": 8, "hard": 2.0, "denominator": "anchor"},
        "scratch": {"ce_on": "both"},
    }

    gamma: float = setting(
        2.0, "larger weighs the classes more against the pull towards less spurious samples"
    )
    tau: float = setting(0.1, "the temperature: smaller pulls hard pairs more than easy ones")
    rank_gap: int = setting(
        5, "larger takes positives from further down the ranking: fewer and less spurious ones"
    )
    hard: float = setting(
        0.0,
        "larger draws the positives that were hardest to rank more often, and those that look "
        "mislabelled less; 0 draws all alike, as the paper does",
    )
    ce_on: str = setting(
        "positive", "which samples are classified in training: `anchor`, `positive` or `both`"
    )
    denominator: str = setting(
        "batch",
        "`anchor` contrasts an anchor with its own negative (the formula), `batch` with all of the "
        "batch (the published code), which is gentler",
    )

    partners: str = setting(
        "beyond",
        "`beyond` takes positives from all buckets past the gap; `published` from the one at the "
        "gap, and embeds partners in evaluation mode: another pass for each step",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, {"partners": self.partners in ("beyond", "published")})

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
    exact = config.partners == "published"
    positives, negatives = rank_partners(targets, bucket, gap, exact)
    if config.hard:
        if guide.p is None:
            session.note(
                "--set hard: the ranking has no column p (how surely samples were learned), "
                "so positives are weighted by their noise alone"
            )
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
    draw = order or (lambda generator: every_sample(task, config, generator))
    trainer.run(session, help.selector, lambda _: draw(trainer.generator))
    help.selector.restore(network)
    return network


class PairLoss:
    """The objective of one batch of anchors; partners are drawn from the step's random numbers."""

    def __init__(
        self, task: Task, network: Network, config: ContrastiveConfig, pos: Ranges, neg: Ranges
    ) -> None:
        self.task, self.network, self.config = task, network, config
        self.pos, self.neg = pos, neg
        self.randoms = 2 + 3 * task.randoms

    def __call__(self, index: Tensor, rand: Tensor) -> Tensor:
        cfg, a = self.config, self.task.randoms
        picks, noise = rand[:, :2], rand[:, 2:].reshape(len(index), 3, a)
        positive = self.pos.draw(index, picks[:, :1])
        z = self._embed(torch.cat([index[:, None], positive], 1), noise[:, :2])
        anchor, z_positive = z[:, 0], z[:, 1:]
        negative, constant = self.neg.draw(index, picks[:, 1:]), z_positive.detach()
        with torch.no_grad():
            if cfg.partners == "published":
                with training_flags_kept(self.network):
                    self.network.eval()
                    both = self._embed(torch.cat([positive, negative], 1), noise[:, 1:])
                constant, z_negative = both[:, :1], both[:, 1:]
            else:
                z_negative = self._embed(negative, noise[:, 2:])
        con = contrastive_loss(anchor, constant, z_negative, cfg.tau, cfg.denominator)
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
