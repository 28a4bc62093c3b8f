"""Wrong labels are found; hard but right ones and clean data are left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from sklearn.metrics import average_precision_score

from ranking.toys import images, noisy, task_of
from sebra.ranking import noise, noise_heads
from sebra.ranking.noise import estimate_noise


def noise_of(x, targets, classes, seed=0):
    """The noise of every row of a feature table (n x d)."""
    return noise._estimate(lambda rows: x[rows], targets, classes, seed, np.arange(len(targets)))


def data(n=600, wrong=60, hard=60, seed=0):
    """Two classes told apart by a strong cue and a weak core.

    The first `wrong` labels are flipped; the next `hard` samples have the other class's cue and
    their own class's core.
    """
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, n)
    cue = np.where((np.arange(n) >= wrong) & (np.arange(n) < wrong + hard), 1 - true, true)
    x = rng.normal(size=(n, 20))
    x[:, 0] += 6 * (2 * cue - 1)
    x[:, 1] += 4 * (2 * true - 1)
    given = true.copy()
    given[:wrong] = 1 - given[:wrong]
    return torch.from_numpy(x).float(), torch.from_numpy(given), true


class Test_what_is_found:
    def test_wrong_labels_come_before_hard_ones(self):
        x, y, _ = data()
        found = noise_of(x, y, 2).noise
        assert average_precision_score(np.arange(600) < 60, found) > 0.9
        assert found[:60].mean() > found[60:120].mean() + 0.4

    def test_the_right_class_is_suggested(self):
        x, y, true = data()
        found = noise_of(x, y, 2)
        assert (found.suggested[:60] == true[:60]).mean() > 0.9
        assert (found.suggested[120:] == true[120:]).mean() > 0.95

    def test_clean_data_is_not_accused(self):
        x, y, _ = data(wrong=0, hard=60)
        assert noise_of(x, y, 2).flagged.mean() < 0.02

    def test_flagged_are_mostly_wrong_and_most_wrong_are_flagged(self):
        x, y, _ = data(n=1200, wrong=120)
        flagged = noise_of(x, y, 2).flagged
        assert flagged[:120].mean() > 0.6
        assert flagged[:120].sum() > 0.8 * flagged.sum()

    def test_values_are_shares_without_gaps(self):
        x, y, _ = data()
        found = noise_of(x, y, 2)
        assert np.isfinite(found.noise).all()
        assert found.noise.min() >= 0
        assert found.noise.max() <= 1

    def test_a_reason_is_given_for_the_flagged_alone(self):
        x, y, _ = data()
        found = noise_of(x, y, 2)
        reasons = found.reasons(y.numpy(), ("cat", "dog"))
        assert [bool(r) for r in reasons] == found.flagged.tolist()
        first = int(np.flatnonzero(found.flagged)[0])
        other, own = ("dog", "cat") if found.suggested[first] else ("cat", "dog")
        assert f"more like “{other}” than like “{own}”" in reasons[first]


class Test_odd_data:
    def test_few_samples_and_one_class_accuse_nobody(self):
        x, y, _ = data(n=30, wrong=3, hard=3)
        assert not noise_of(x, y, 2).noise.any()
        assert not noise_of(torch.randn(100, 5), torch.zeros(100).long(), 1).noise.any()

    def test_a_class_of_three_and_a_constant_feature(self):
        x, y, _ = data()
        y = y.clone()
        y[-3:] = 2
        x[:, 5] = 7.0
        found = noise_of(x, y, 3)
        assert np.isfinite(found.noise).all()
        assert (found.suggested[found.flagged] != 2).all()

    def test_samples_beyond_the_training_limit_are_judged_the_same_way(self, monkeypatch):
        x, y, _ = data(n=1200, wrong=120)
        monkeypatch.setattr(noise_heads, "MOST_TO_TRAIN", 700)
        found = noise_of(x, y, 2).noise
        assert average_precision_score(np.arange(1200) < 120, found) > 0.9

    def test_too_many_logits_are_not_even_tried(self, monkeypatch):
        task = noisy()
        monkeypatch.setattr(noise, "MOST_NUMBERS", 10)
        assert noise.too_large(task)
        assert not estimate_noise(task).noise.any()


def test_images_need_no_training():
    task = images(n=120)
    y = task.targets.clone()
    y[:10] = 1 - y[:10]
    found = estimate_noise(replace(task, targets=y)).noise
    assert average_precision_score(np.arange(120) < 10, found) > 0.9


def test_heads_that_hardly_know_the_classes_accuse_nobody():
    """Right labels of classes that can hardly be seen; nothing speaks against any of them."""
    for core in (0.0, 0.25):
        rng = np.random.default_rng(1)
        y = rng.integers(0, 2, 1500)
        x = rng.normal(size=(1500, 16))
        x[:, 0] += core * (2 * y - 1)
        found = noise_of(torch.from_numpy(x).float(), torch.from_numpy(y), 2)
        assert found.flagged.mean() < 0.02


def test_classes_that_cannot_be_told_apart_do_not_accuse_each_other():
    """Classes in twos that look alike; wrong labels across the twos are found all the same."""
    rng = np.random.default_rng(7)
    true = rng.integers(0, 4, 2000)
    x = 1.5 * rng.normal(size=(2, 20))[true // 2] + rng.normal(size=(2000, 20))
    given = true.copy()
    given[:100] = (given[:100] + 2) % 4
    found = noise_of(torch.from_numpy(x).float(), torch.from_numpy(given), 4).flagged
    assert found[:100].mean() > 0.6
    assert found[100:].mean() < 0.01


def test_labels_mixed_up_between_two_classes_are_found():
    """A fifth of each class bears the next one's label, so heads are less sure."""
    rng = np.random.default_rng(3)
    true = rng.integers(0, 5, 2500)
    x = 2 * rng.normal(size=(5, 20))[true] + rng.normal(size=(2500, 20))
    wrong = rng.random(2500) < 0.2
    given = np.where(wrong, (true + 1) % 5, true)
    found = noise_of(torch.from_numpy(x).float(), torch.from_numpy(given), 5).flagged
    assert found[wrong].mean() > 0.6
    assert wrong[found].mean() > 0.9


def test_the_chances_add_up_to_the_wrong_labels():
    """What is called a chance is one: their sum is about how many labels are wrong."""
    rng = np.random.default_rng(11)
    true = rng.integers(0, 4, 3000)
    x = 1.2 * rng.normal(size=(4, 20))[true] + rng.normal(size=(3000, 20))
    for wrong in (0, 150, 450):
        given = true.copy()
        given[:wrong] = (given[:wrong] + rng.integers(1, 4, wrong)) % 4
        found = noise_of(torch.from_numpy(x).float(), torch.from_numpy(given), 4).noise.sum()
        assert abs(found - wrong) < 45


def test_units_order_and_names_of_classes_change_nothing():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = rng.normal(size=(300, 6)) + 2 * np.eye(3)[y] @ rng.normal(size=(3, 6))
    y[:30] = (y[:30] + 1) % 3
    scale, shift, order = 10 ** rng.uniform(-2, 2, 6), rng.normal(size=6), rng.permutation(300)
    expected = estimate_noise(task_of(x.astype(np.float32), y)).noise
    assert (expected > 0.1).any()
    for rows, values, labels in (
        (slice(None), x * scale + shift, y),
        (order, x[order], y[order]),
        (slice(None), x, 2 - y),
    ):
        again = estimate_noise(task_of(values.astype(np.float32), labels)).noise
        np.testing.assert_allclose(again, expected[rows], atol=1e-3)
