"""Keeps `history.parquet`: what was learned per round and class, and which cue the network follows.

It stands between rankers and attributes: a ranker reports its network here and gets nothing back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sebra.engine.step import evaluating, predict
from sebra.engine.task import Task
from sebra.measuring.groups import score
from sebra.samples.table import Samples


def predicted_classes(network: torch.nn.Module, task: Task) -> np.ndarray[Any, Any]:
    """The class a network gives every sample of a task."""
    with evaluating(network):
        index = torch.arange(len(task), device=task.device)
        return predict(network, task, index).argmax(1).cpu().numpy()


class History:
    """One row per round and class. `watched` is an unbiased split to measure the cues on."""

    def __init__(self, samples: Samples, watched: str | None, task: Task | None) -> None:
        self.rows: list[dict[str, Any]] = []
        labels = samples.labels[samples.rows("train")]
        self._labels = torch.from_numpy(labels)
        self._counts = np.bincount(labels, minlength=len(samples.classes))
        self._samples = samples
        self._watched = watched
        self._task = task

    def round(
        self, number: int, network: torch.nn.Module | None, loss: float, learned: torch.Tensor
    ) -> None:
        """Called by a ranker after every round."""
        classes = self._samples.classes
        done = np.bincount(self._labels[learned.cpu()].numpy(), minlength=len(classes))
        cues = self._cues(network) if network is not None else {}
        for c, name in enumerate(classes):
            share = float(done[c] / max(1, self._counts[c]))
            row = {"epoch": number, "label": name, "learned": share, "loss": loss}
            self.rows.append({**row, **{f"cue_{k}": v for k, v in cues.items()}})

    def _cues(self, network: torch.nn.Module) -> dict[str, float]:
        if self._watched is None or self._task is None:
            return {}
        predicted = predicted_classes(network, self._task)
        return dict(score(self._samples, self._samples.rows(self._watched), predicted).cues)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = list(state["rows"])


def history_of(samples: Samples, task_of: Any) -> History:
    """A history that watches the validation split where it has attributes."""
    watch = "val" if samples.attributes and len(samples.rows("val")) else None
    return History(samples, watch, task_of(watch) if watch else None)
