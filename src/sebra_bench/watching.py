"""Two criteria that watch one training: without attributes, and by validation groups."""

from __future__ import annotations

from typing import Any

from torch import nn

from sebra.debiasing.method import Pool
from sebra.debiasing.selection import Selector
from sebra.ranking.ranking import Ranking
from sebra.workflows.prepared import Prepared
from sebra.workflows.validation import Parts, make_selector
from sebra_bench.plan import GROUPS


class Watch(Selector):
    """A selector without attributes; beside it one by true groups keeps weights of its own.

    The training sees the first alone. Afterwards `take` puts either's weights into the network.
    """

    def __init__(self, free: Selector, groups: Selector) -> None:
        super().__init__(free._validate, free.criterion)
        self.groups = groups
        self.network: nn.Module | None = None

    @classmethod
    def make(
        cls,
        prepared: Prepared,
        parts: Parts,
        pool: Pool | None,
        ranking: Ranking | None,
        _select: str,
    ) -> Watch:
        free, groups = (
            make_selector(prepared, parts, pool, ranking, how) for how in ("auto", "groups")
        )
        return cls(free, groups)

    def epoch(self, number: int, network: nn.Module, loss: float) -> None:
        super().epoch(number, network, loss)
        self.groups.epoch(number, network, loss)

    def settle(self, number: int, network: nn.Module, loss: float) -> None:
        self.groups.best_score = self.best_score = float("-inf")
        self.epoch(number, network, loss)
        self.network = network

    def restore(self, network: nn.Module) -> None:
        super().restore(network)
        self.network = network

    def take(self, kind: str) -> dict[str, Any] | None:
        """Puts the weights that a criterion chose into the network and says how they were chosen.

        None of a method that asked no selector: it has one network for both.
        """
        if self.network is None:
            return None
        chosen = self.groups if kind == GROUPS else self
        Selector.restore(chosen, self.network)
        return {
            "criterion": chosen.criterion,
            "best_epoch": chosen.best_epoch,
            **({"score": chosen.best_score} if "score" in chosen.rows[-1] else {}),
        }
