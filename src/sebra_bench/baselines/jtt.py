"""Just train twice: what a short plain training gets wrong is shown more often.

Follows Liu, Haghgoo, Chen, Raghunathan, Koh, Sagawa, Liang and Finn, "Just Train Twice: Improving
Group Robustness without Training Group Information" (ICML 2021). Its T and upsampling factor are
tuned per data set; the defaults are of one of them. It departs in one thing: both trainings use
the same settings, where the paper may tune each on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import Help, Method, TrainConfig, Trainer, every_sample, make_trainer
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.step import evaluating, predict, shuffled, weighted_draws
from sebra.engine.task import Task
from sebra.loading.augment import Augment
from sebra.settings import setting
from sebra.values import check


@dataclass(frozen=True)
class JttConfig(TrainConfig):
    """The two trainings."""

    identify_epochs: int = setting(
        1, "T: a longer first training makes fewer errors, so fewer samples are shown more often"
    )
    upsample: int = setting(50, "how often an error of the first training is shown in the second")
    draws: str = setting(
        "upsampled",
        "`upsampled` goes once through the enlarged set, as the paper does; `equal` draws as many "
        "samples as there are, so that an epoch costs what it costs other methods",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks = {
            "identify_epochs": self.identify_epochs >= 1,
            "upsample": self.upsample >= 1,
            "draws": self.draws in ("upsampled", "equal"),
        }
        check(self, checks)


def upsampled(errors: Tensor, times: int) -> Tensor:
    """Every sample once, and every error `times` times in all (positions, on the CPU)."""
    errors = errors.cpu()
    return torch.arange(len(errors)).repeat_interleave(torch.where(errors, times, 1))


class Jtt(Method[JttConfig]):
    """Plain training, its errors, and plain training with the errors upsampled."""

    name = "jtt"
    config_class = JttConfig
    in_processes = True

    def __init__(self, config: JttConfig) -> None:
        super().__init__(config)
        self.errors = torch.empty(0, dtype=torch.bool)

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        """Trains twice. Afterwards `errors` says which samples were upsampled."""
        cfg = self.config
        task = replace(task, augment=Augment(cfg.flip, cfg.crop))
        found = session.once("identify", lambda: {"errors": self._identify(task, session)})
        self.errors = found["errors"].bool().cpu()
        if not bool(self.errors.any()):
            session.note("jtt: the first training made no errors; the second is plain training")
        pool = upsampled(self.errors, cfg.upsample)
        times = torch.where(self.errors, cfg.upsample, 1)
        batch = min(cfg.batch, len(task))
        network, trainer = _plain(task, cfg, offset=0)

        def order(epoch: int) -> Tensor:
            if cfg.draws == "equal":
                return weighted_draws(times, len(task), batch, trainer.generator)
            return shuffled(pool, batch, trainer.generator)

        trainer.run(session, help.selector, order)
        help.selector.restore(network)
        return network

    def _identify(self, task: Task, session: Session) -> Tensor:
        cfg = replace(self.config, epochs=self.config.identify_epochs)
        network, trainer = _plain(task, cfg, offset=1)
        trainer.run(session, None, lambda _: every_sample(task, cfg, trainer.generator), "identify")
        with evaluating(network):
            logits = predict(network, task, torch.arange(len(task)))
        return logits.argmax(1) != task.targets


def _plain(task: Task, cfg: TrainConfig, offset: int) -> tuple[Network, Trainer]:
    network = task.network(offset=offset, hidden=cfg.hidden)

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        return F.cross_entropy(network(task.batch(index, rand)).float(), task.targets[index])

    return network, make_trainer(task, network, cfg, loss, offset=offset)
