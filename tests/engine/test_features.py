"""The backbone's features, taken once, and their moments."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from frozen_features import extract_features
from ranking.toys import images
from sebra.engine import features
from sebra.engine.features import moments
from sebra.engine.networks import NetworkSpec, build
from sebra.engine.weights import Weights
from sebra.loading.inputs import Inputs
from sebra.samples.table import FeatureArray

SPEC = NetworkSpec("small", (3, 12, 12), 2)


def test_features_are_the_embedding_and_come_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    task = images(n=9)
    network = build(SPEC, 0)
    told = []
    found = extract_features(SPEC, None, task.inputs, "k", lambda *a: told.append(a))
    with torch.no_grad():
        expected = network.eval().embed(task.inputs.batch(torch.arange(9)))
    np.testing.assert_allclose(
        np.asarray(found.pooled.values, np.float32), expected.numpy(), atol=2e-3, rtol=2e-3
    )
    assert told == [(9, 9)]
    monkeypatch.setattr(features.networks, "build", lambda *a: pytest.fail("built again"))
    again = extract_features(SPEC, None, task.inputs, "k")
    np.testing.assert_array_equal(again.pooled.values, found.pooled.values)


def test_other_images_or_weights_are_not_taken_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    inputs = images(n=4).inputs
    seen = []
    fill = features._fill
    monkeypatch.setattr(features, "_fill", lambda *a, **k: seen.append(1) or fill(*a, **k))
    weights = Weights("w", "digest", build(SPEC, 0).body.state_dict())
    extract_features(SPEC, None, inputs, "a")
    extract_features(SPEC, None, inputs, "b")
    extract_features(SPEC, weights, inputs, "a")
    assert len(seen) == 3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_moments_are_those_of_the_rows_in_use(dtype):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(700, 3)) * [1, 5, 0] + [100, -3, 2]).astype(dtype)
    rows = np.arange(0, 700, 2)
    mean, std = moments(Inputs(FeatureArray(x, rows), torch.device("cpu")))
    used = x[rows].astype(np.float64)
    np.testing.assert_allclose(mean.numpy(), used.mean(0), rtol=1e-5)
    np.testing.assert_allclose(std.numpy(), used.std(0), rtol=1e-4, atol=1e-6)
