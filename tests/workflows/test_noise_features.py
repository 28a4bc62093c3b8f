"""Wrong labels are told by penultimate features, whatever a ranker has seen."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ranking.toys import noisy
from sebra.engine.session import Session
from sebra.ranking.noise import NoiseEstimate
from sebra.ranking.ranking import Blind, Ranker, RankResult
from sebra.runs.meter import Meter
from sebra.workflows import rank


class Estimating(Ranker):
    """Says on the way who is mislabelled."""

    def rank(self, task, session, monitor) -> RankResult:
        estimate = NoiseEstimate(np.zeros(len(task)), task.targets.numpy())
        return RankResult(np.zeros(len(task), dtype=np.int64), np.arange(60.0), noise=estimate)


@pytest.mark.parametrize("same", [True, False])
def test_an_estimate_over_other_features_is_made_anew(monkeypatch, same):
    task, other = noisy(), noisy(seed=1)
    labels = task.targets.numpy()
    part = SimpleNamespace(ids=np.arange(60).astype(str), labels=labels, classes=["a", "b", "c"])
    prepared = SimpleNamespace(
        rank_task=lambda ranker: task if same else other,
        split=lambda name: (part, task.inputs),
        source=SimpleNamespace(data="x"),
    )
    told = []
    monkeypatch.setattr(rank, "add_noise", lambda *args: told.append(args[-1]))
    meter = Meter()
    rank.ranking_of(prepared, Estimating(None), Session(), meter, Blind())
    meter.result()
    assert (told[0] is not None) == same
