"""The paper's debiasing: contrastive training over a spuriosity ranking (section 3.3)."""

from __future__ import annotations

from sebra.debiasing.contrastive import ContrastiveConfig, fit_pairs, partners_of
from sebra.debiasing.method import Help, Method, needed
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task


class Sebra(Method[ContrastiveConfig]):
    """Pulls a sample towards less spurious ones of its class, away from equally spurious ones."""

    name = "sebra"
    needs = frozenset({"ranking"})
    config_class = ContrastiveConfig
    in_processes = True

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        guide = needed(help.guide, "a ranking (--ranking)", self.name)
        partners = partners_of(
            task.targets, guide.bucket, guide, self.config, self.config.rank_gap, session
        )
        return fit_pairs(task, help, session, self.config, *partners)
