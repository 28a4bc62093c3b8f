"""The estimator: scikit-learn's own checks, the same ranking as the algorithm, nothing copied."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import sebra
from ranking.toys import planted
from sebra.engine import features
from sebra.engine.session import Session
from sebra.measuring.ranks import by_class, somers_d
from sebra.ranking.estimator import SebraRanker
from sebra.ranking.ranking import Blind
from sebra.ranking.sebra import SebraConfig
from sebra.ranking.sebra import SelfGuidedRanker as Algorithm
from sebra.runs.config import settle
from sebra.runs.meter import Meter
from sebra.workflows.classifier import SebraClassifier


@parametrize_with_checks([SebraRanker(epochs=2), SebraRanker(epochs=2, draws="remaining")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@parametrize_with_checks([SebraClassifier()])
def test_scikit_learns_checks_of_the_classifier(estimator, check):
    check(estimator)


def test_the_classifier_keeps_words_and_says_what_it_kept():
    x, y, _ = arrays()
    words = np.array(["waterbird", "landbird"])[y]
    found = SebraClassifier().fit(x, words)
    assert found.classes_.tolist() == ["landbird", "waterbird"]
    assert found.score(x, words) > 0.8
    assert found.metrics_["choice"]["kept"] in ("plain", "debiased")
    with pytest.raises(ValueError, match="method"):
        SebraClassifier(method="nothing").fit(x, words)


def arrays():
    task, conflicting = planted()
    return task.batch(torch.arange(len(task))).numpy(), task.targets.numpy(), conflicting


def test_ranks_a_planted_bias_first():
    x, y, conflicting = arrays()
    found = sebra.SebraRanker(p_critical=0.7, beta=1.25).fit(x, y)
    quality = by_class(somers_d, found.rank_, conflicting.astype(int), y)
    assert min(quality.values()) > 0.95
    for c in (0, 1):
        members = y == c
        assert sorted(found.rank_[members]) == list(range(members.sum()))
        order = np.argsort(found.rank_[members])
        assert (np.diff(found.spuriosity_[members][order]) < 0).all()
        assert (np.diff(found.bucket_[members][order]) >= 0).all()
    assert found.spuriosity_.min() == 0
    assert found.spuriosity_.max() == 1


def test_is_the_ranking_of_features_mode():
    """The same data, settings and seed through the algorithm itself."""
    x, y, _ = arrays()
    task, _ = planted()
    config = settle(SebraConfig, "rank", "sebra", "features").config
    expected = Algorithm(config).rank(task, Session(), Blind())
    found = SebraRanker().fit(x, y)
    np.testing.assert_array_equal(found.bucket_, expected.bucket)
    assert found.n_rounds_ == expected.details["rounds"]


def test_labels_may_be_words_in_any_order():
    x, y, _ = arrays()
    words = np.array(["waterbird", "landbird"])[y]
    plain, named = SebraRanker().fit(x, 1 - y), SebraRanker().fit(x, words)
    assert named.classes_.tolist() == ["landbird", "waterbird"]
    np.testing.assert_array_equal(named.rank_, plain.rank_)


def test_random_state_decides():
    x, y, _ = arrays()
    settings = {"epochs": 2, "batch": 16}
    one, again, other = (SebraRanker(random_state=s, **settings).fit(x, y) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.rank_, again.rank_)
    assert not np.array_equal(one.rank_, other.rank_)
    states = [np.random.RandomState(4) for _ in range(2)]
    first, second = (SebraRanker(random_state=s, **settings).fit(x, y) for s in states)
    np.testing.assert_array_equal(first.rank_, second.rank_)


def test_a_clone_keeps_the_parameters_and_says_what_it_noticed():
    x, y, _ = arrays()
    made = clone(SebraRanker(lr=30.0, batch=8))
    assert made.get_params()["lr"] == 30.0
    assert "resolution" in made.fit(x, y).notes_[0]
    assert np.bincount(made.bucket_).max() <= 0.25 * len(y)
    assert SebraRanker(lr=0.5, resolution="epoch").fit(x, y).notes_ == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"p_critical": 1.5}, "p_critical=1.5"),
        ({"lam": 9.0}, "lambda = 9 has no threshold"),
        ({"draws": "few"}, "draws='few'"),
        ({"device": "tpu"}, "device: 'tpu'"),
        ({"lr": np.float64(-1)}, "lr=-1.0: must be"),  # not np.float64(-1.0)
    ],
)
def test_wrong_parameters_are_value_errors_at_fit(wrong, words):
    x, y, _ = arrays()
    with pytest.raises(ValueError, match=words):
        SebraRanker(**wrong).fit(x, y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x, np.zeros_like(y)), "one class"),
        (lambda x, y: (np.where(x > 2, np.nan, x), y), "NaN"),
        (lambda x, y: (x, y[:-1]), "inconsistent numbers"),
        (lambda x, y: (x, y + 0.5), "Unknown label type"),
    ],
    ids=["one class", "nan", "length", "continuous"],
)
def test_wrong_data_is_a_value_error(change, words):
    x, y, _ = arrays()
    with pytest.raises(ValueError, match=words):
        SebraRanker().fit(*change(x, y))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    "part", [slice(None), slice(100, None), slice(None, None, 2)], ids=["all", "tail", "every 2nd"]
)
def test_a_read_only_map_and_a_part_of_one_rank_like_the_array(tmp_path, dtype, part):
    x, y, _ = arrays()
    np.save(tmp_path / "X.npy", x.astype(dtype))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    y = y[part] if part.step is None else np.arange(200) // 2 % 2
    found = SebraRanker(epochs=3).fit(mapped[part], y)
    expected = SebraRanker(epochs=3).fit(x.astype(dtype)[part].copy(), y)
    np.testing.assert_array_equal(found.rank_, expected.rank_)


@pytest.mark.parametrize(("dtype", "n"), [(np.float16, 200_000), (np.float32, 100_000)])
def test_a_map_is_not_copied(tmp_path, monkeypatch, dtype, n):
    monkeypatch.setattr(features, "_MOMENT_ROWS", 1024)  # so that a copy is what would show
    d = 256
    size_mib = n * d * np.dtype(dtype).itemsize / 2**20
    written = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", dtype, (n, d))
    rng = np.random.default_rng(0)
    block = rng.normal(size=(1000, d)).astype(dtype)
    for start in range(0, n, 1000):
        written[start : start + 1000] = block
    y = np.arange(n) % 2
    del written
    small = SebraRanker(epochs=1, batch=256, resolution="epoch")
    small.fit(block, y[:1000])  # what the libraries take the first time is not the matter
    before = Meter().result()["peak_memory_mib"]
    meter = Meter()
    small.fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y)
    time.sleep(0.15)
    assert meter.result()["peak_memory_mib"] - before < 0.7 * size_mib
