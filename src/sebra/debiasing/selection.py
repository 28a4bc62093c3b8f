"""Model selection: after every epoch the network is validated and the best one is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# What validation reports for one epoch: the score to maximise and figures for the history.
Validate = Callable[[nn.Module], tuple[float, dict[str, float]]]


class Selector:
    """Keeps the weights of the epoch with the highest validation score.

    criterion: in plain words, which score this is. Ties go to the later epoch.
    """

    def __init__(self, validate: Validate | None, criterion: str) -> None:
        self._validate = validate
        self.criterion = criterion
        self.best_epoch = -1
        self.best_score = float("-inf")
        self.rows: list[dict[str, Any]] = []
        self._best: dict[str, torch.Tensor] = {}

    def epoch(self, number: int, network: nn.Module, loss: float) -> None:
        """Validates the network as it is after this epoch."""
        row: dict[str, Any] = {"epoch": number, "loss": loss}
        if self._validate is not None:
            score, figures = self._validate(network)
            row.update({"score": score, **figures})
        else:
            score = float(number)
        self.rows.append(row)
        if score >= self.best_score:
            self.best_score, self.best_epoch = score, number
            self._best = {k: v.detach().clone() for k, v in network.state_dict().items()}

    def settle(self, number: int, network: nn.Module, loss: float) -> None:
        """The network is what the method ends with, however earlier epochs scored."""
        self.best_score = float("-inf")
        self.epoch(number, network, loss)

    def restore(self, network: nn.Module) -> None:
        """Puts the best epoch's weights back into the network."""
        if self._best:
            network.load_state_dict(self._best)

    def state_dict(self) -> dict[str, Any]:
        return {
            "best_epoch": self.best_epoch,
            "best_score": self.best_score if self.best_epoch >= 0 else None,
            "rows": self.rows,
            "best": self._best,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best_epoch = int(state["best_epoch"])
        score = state["best_score"]
        self.best_score = float("-inf") if score is None else float(score)
        self.rows = list(state["rows"])
        self._best = dict(state["best"])
