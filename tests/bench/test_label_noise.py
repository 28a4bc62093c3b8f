"""Wrong labels on purpose: as many as asked, in training alone, never the right one."""

from __future__ import annotations

import numpy as np
import pytest

from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra_bench.label_noise import inject_noise


@pytest.fixture(scope="module")
def samples():
    return open_samples("demo?n=200")


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_the_share_of_training_labels_is_changed(samples, kind):
    noisy, changed = inject_noise(samples, 0.2, kind)
    assert changed.sum() == round(0.2 * len(samples.rows("train")))
    assert ((noisy.labels != samples.labels) == changed).all()
    assert (samples.split[changed] == 0).all()


def test_pairs_take_the_next_class_and_symmetric_any_other():
    rng = np.random.default_rng(0)
    from sebra.samples.table import FeatureArray, Samples

    n = 600
    many = Samples(
        ids=np.array([str(i) for i in range(n)], dtype=object),
        labels=rng.integers(0, 4, n),
        classes=("a", "b", "c", "d"),
        split=np.zeros(n, dtype=np.int8),
        content=FeatureArray(np.zeros((n, 2)), np.arange(n)),
    )
    noisy, changed = inject_noise(many, 0.5, "pair")
    assert (((noisy.labels - many.labels) % 4)[changed] == 1).all()
    noisy, changed = inject_noise(many, 0.5, "symmetric")
    steps = np.bincount(((noisy.labels - many.labels) % 4)[changed], minlength=4)
    assert steps[0] == 0
    assert (steps[1:] > 60).all()


def test_the_seed_decides(samples):
    first, again = inject_noise(samples, 0.1, seed=3)[1], inject_noise(samples, 0.1, seed=3)[1]
    assert (first == again).all()
    assert (first != inject_noise(samples, 0.1, seed=4)[1]).any()


@pytest.mark.parametrize(("share", "kind"), [(1.5, "pair"), (-0.1, "pair"), (0.1, "odd")])
def test_nonsense_is_refused(samples, share, kind):
    with pytest.raises(UsageError, match="noise"):
        inject_noise(samples, share, kind)
