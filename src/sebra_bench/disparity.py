"""Performance Disparity: how much better the tail of a ranking teaches than its head."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.debiasing.method import TrainConfig, every_sample, make_trainer
from sebra.engine.session import ProgressSink, Session
from sebra.loading.augment import Augment
from sebra.measuring.ranks import Array, order_of
from sebra.ranking.ranking import Ranking
from sebra.runs.config import preset_names
from sebra.runs.meter import Meter
from sebra.samples.table import IntArray, Samples
from sebra.settings import Modes, of_mode
from sebra.workflows.history import predicted_classes
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Prepared, Source
from sebra_bench.seeds import mean_std

DEFAULT_K = 100
PD_LAST_EPOCHS = 5


def bottom_and_top(ranks: Array, labels: Array, k: int | None = None) -> tuple[IntArray, IntArray]:
    """Indices of the k least and the k most spurious samples of each class.

    k is 100 unless given, and never more than half of a class, so the two sides are disjoint and
    hold the same number of samples of each class.
    """
    bottom, top = [], []
    for c, size in _sizes(labels, k).items():
        members = np.flatnonzero(labels == c)
        order = members[order_of(ranks[members])]
        top.append(order[:size])
        bottom.append(order[len(order) - size :])
    return _joined(bottom), _joined(top)


def performance_disparity(
    train_and_score: Callable[[IntArray], float],
    ranks: Array,
    labels: Array,
    k: int | None = None,
) -> dict[str, Any]:
    """PD = accuracy(trained on bottom k) - accuracy(trained on top k), in points.

    `train_and_score` gets indices into `ranks`, trains a fresh network on those samples alone and
    returns its test accuracy in percent. The result's `k` lists what was used in each class.
    """
    bottom_rows, top_rows = bottom_and_top(ranks, labels, k)
    bottom, top = float(train_and_score(bottom_rows)), float(train_and_score(top_rows))
    return {
        "pd": bottom - top,
        "bottom": bottom,
        "top": top,
        "k": list(_sizes(labels, k).values()),
    }


def _sizes(labels: Array, k: int | None) -> dict[int, int]:
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    wanted = DEFAULT_K if k is None else k
    present, counts = np.unique(labels, return_counts=True)
    return {int(c): min(wanted, int(n) // 2) for c, n in zip(present, counts, strict=True)}


def _joined(parts: list[Any]) -> IntArray:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)


def disparity(
    ranking: Ranking,
    samples: Samples,
    config: dict[str, Any],
    data: str,
    device: str,
    seeds: int,
    k: int | None,
    progress: ProgressSink | None,
) -> dict[str, Any]:
    """PD with the network of the ranking run: trained on the bottom k, then on the top k."""
    session = Session(progress=progress)
    preset = config.get("preset")
    if preset not in preset_names() and not Path(str(preset)).is_file():
        preset = None
    runs = []
    for seed in range(seeds):
        source = Source(
            data=data,
            seed=seed,
            device=device,
            mode=config.get("mode", "auto"),
            backbone=config.get("backbone"),
            weights=config.get("weights"),
            image_size=config.get("image_size"),
        )
        prepared = prepare(source, session, Meter(), samples, preset)
        table = ranking.aligned_to(prepared.split("train")[0].ids)
        labels = prepared.task("train").targets.cpu().numpy()

        def train_and_score(index: npt.NDArray[np.int64], prepared: Prepared = prepared) -> float:
            return subset_accuracy(prepared, index, session)

        runs.append(performance_disparity(train_and_score, table["rank"].to_numpy(), labels, k))
    if seeds == 1:
        return {"pd": runs[0]["pd"], "pd_details": runs[0]}
    joined = mean_std([{k: v for k, v in r.items() if k != "k"} for r in runs])
    return {"pd": joined["pd"], "pd_details": {**joined, "k": runs[0]["k"]}}


@dataclass(frozen=True)
class PdConfig(TrainConfig):
    """How the networks of PD are trained: the same on both sides, whatever made the ranking."""

    MODES: ClassVar[Modes] = {
        "features": {"weight_decay": 1e-4, "batch": 64},
        "scratch": {"weight_decay": 1e-4, "epochs": 30},
    }

    epochs: int = 20
    weight_decay: float = 0.0
    batch: int = 64


def subset_accuracy(prepared: Prepared, index: npt.NDArray[np.int64], session: Session) -> float:
    """Test accuracy, mean of the last epochs, of plain training on these samples alone."""
    config = PdConfig(**of_mode(PdConfig, prepared.mode))
    chosen = torch.from_numpy(np.sort(index)).to(prepared.device)
    task = replace(prepared.task("train").subset(chosen), augment=Augment(config.flip, config.crop))
    network = task.network(hidden=config.hidden)
    test = prepared.task("test")
    targets = test.targets.cpu().numpy()

    def loss(index: Tensor, rand: Tensor) -> Tensor:
        return F.cross_entropy(network(task.batch(index, rand)).float(), task.targets[index])

    trainer = make_trainer(task, network, config, loss)
    seen: list[float] = []

    def after(epoch: int) -> None:
        if epoch >= config.epochs - PD_LAST_EPOCHS:
            seen.append(float((predicted_classes(network, test) == targets).mean()) * 100)

    trainer.run(session, None, lambda _: every_sample(task, config, trainer.generator),
                phase=f"pd-{time.monotonic_ns()}", after_epoch=after)  # fmt: skip
    return float(np.mean(seen))
