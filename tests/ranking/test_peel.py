"""Balanced peeling finds what was planted, in order, and nothing where nothing was."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from ranking.toys import task_of
from sebra.engine.networks import RANDOM, NetworkSpec, build
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.ranking.order import ranks_within_classes, spuriosity_of
from sebra.ranking.peel import PeelConfig, PeelRanker
from sebra.ranking.ranking import Blind
from sebra.samples.open import open_samples


@cache
def pictures(biases: int, seed: int = 0):
    """Features, labels and which shortcuts are followed, of the built-in set's training split."""
    samples = open_samples(f"demo?biases={biases}&seed={seed}", None)
    part = samples.take(samples.rows("train"))
    pixels = torch.from_numpy(part.content.pixels[part.content.rows]).permute(0, 3, 1, 2)
    body = build(NetworkSpec(RANDOM, (3, *pixels.shape[2:]), 1), 0).eval()
    with torch.no_grad():
        x = torch.cat([body.embed(p) for p in torch.split(pixels, 250)]).numpy()
    follows = np.array([a.codes == part.labels for a in part.attributes.values()])
    return x, part.labels, follows


def somers(column, aligned):
    """2·AUC - 1 by brute force over all pairs."""
    a, b = column[aligned], column[~aligned]
    return float(np.sign(a[:, None] - b[None, :]).mean())


def peel(x, y, **settings):
    session = Session()
    return PeelRanker(PeelConfig(**settings)).rank(task_of(x, y), session, Blind()), session


def test_two_shortcuts_come_out_in_order_of_strength():
    x, y, follows = pictures(2)
    result, _ = peel(x, y)
    assert list(result.stages) == ["stage_1", "stage_2"]
    for k in range(2):
        found = result.stages[f"stage_{k + 1}"]
        assert somers(found, follows[k]) > 0.9
        assert ((found > 0.5) == follows[k]).mean() > 0.95
    rank = ranks_within_classes(result.bucket, result.score, y)
    sides = ((True, True), (True, False), (False, True), (False, False))
    means = [rank[(follows[0] == a) & (follows[1] == b)].mean() for a, b in sides]
    assert means == sorted(means)
    spuriosity = spuriosity_of(rank, y, result.level, result.levels)
    for (a, b), low in zip(sides, (0.75, 0.5, 0.25, 0.0), strict=True):
        here = spuriosity[(follows[0] == a) & (follows[1] == b)]
        assert ((here >= low) & (here <= low + 0.25)).mean() > 0.8


def test_unbiased_pictures_have_no_stage_and_the_run_says_so():
    x, y, _ = pictures(0)
    result, session = peel(x, y)
    assert result.level is None
    assert not result.stages
    assert any("no pattern" in note for note in session.notes)
    assert len(np.unique(result.bucket)) > 1  # from easy to hard, not one heap


def test_wrong_labels_do_not_take_over():
    x, y, follows = pictures(2)
    wrong = np.random.default_rng(0).random(len(y)) < 0.15
    result, session = peel(x, np.where(wrong, 1 - y, y))
    kept = ~wrong
    assert somers(result.stages["stage_1"][kept], follows[0][kept]) > 0.9
    assert any("mislabelled" in note for note in session.notes)


def test_wrong_labels_do_not_pass_for_broken_shortcuts_nor_hide_them():
    x, y, follows = pictures(2)
    wrong = np.random.default_rng(1).random(len(y)) < 0.1
    given = np.where(wrong, 1 - y, y)
    result, _ = peel(x, given)
    followed = result.stages["stage_1"] > 0.5
    assert (followed == follows[0])[~wrong].mean() > 0.95
    assert not followed[wrong & follows[0]].any()  # the shortcut of the other class
    rank = ranks_within_classes(result.bucket, result.score, given)
    last = rank >= 0.95 * np.bincount(given)[given]
    assert wrong[last].mean() < 0.5  # most of those that break every shortcut are mislabelled


def test_a_rare_class_keeps_its_ranking():
    x, y, follows = pictures(1)
    rng = np.random.default_rng(0)
    keep = (y == 0) | ~follows[0] | (rng.random(len(y)) < 0.15)
    result, _ = peel(x[keep], y[keep])
    for c in range(2):
        here = y[keep] == c
        assert somers(result.stages["stage_1"][here], follows[0][keep][here]) > 0.9


def test_the_same_seed_gives_the_same_ranking():
    x, y, _ = pictures(1)
    first, second = peel(x[:400], y[:400])[0], peel(x[:400], y[:400])[0]
    np.testing.assert_array_equal(first.bucket, second.bucket)
    np.testing.assert_array_equal(first.score, second.score)


def test_a_lower_chance_of_a_false_alarm_refuses_weaker_stages():
    x, y, _ = pictures(2)
    assert len(peel(x, y, chance=1e-200)[0].stages) < len(peel(x, y)[0].stages)


def test_settings_out_of_range_are_refused():
    with pytest.raises(UsageError, match="chance"):
        PeelConfig(chance=0)


def ranks(x, y):
    result, _ = peel(x, y, least_noise=1)
    columns = np.array([*result.stages.values()])
    return ranks_within_classes(result.bucket, result.score, y), columns


def test_units_order_and_names_of_classes_change_nothing():
    x, y, _ = pictures(2)
    x = x.astype(np.float64)
    rank, columns = ranks(x, y)
    rng = np.random.default_rng(0)
    scale, shift = 10 ** rng.uniform(-2, 2, x.shape[1]), rng.normal(size=x.shape[1])
    order = rng.permutation(len(y))
    for rows, values, labels in (
        (slice(None), x * scale + shift, y),
        (order, x[order], y[order]),
        (slice(None), x, 1 - y),
    ):
        again, others = ranks(values, labels)
        assert len(others) == len(columns)
        np.testing.assert_allclose(others, columns[:, rows], atol=1e-4)
        assert np.corrcoef(again, rank[rows])[0, 1] > 0.9999


def cloud(kind, seed, n=800, d=20):
    """Data without a pattern: only hard or mislabelled samples."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    x = rng.normal(size=(n, d))
    if kind == "one soft cue":
        x[:, 0] += 2 * y
    elif kind == "weak cues":
        x[:, :6] = x[:, :6] * np.linspace(0.5, 2, 6) + 0.8 * y[:, None]
    elif kind == "wrong labels":
        x[:, 0] += 5 * y
    wrong = rng.random(n) < (0.15 if kind == "wrong labels" else 0)
    given = rng.permutation(y) if kind == "shuffled" else np.where(wrong, 1 - y, y)
    return (x * 10 ** rng.uniform(-2, 2, d)).astype(np.float32), given


@pytest.mark.parametrize("kind", ["one soft cue", "weak cues", "wrong labels", "shuffled"])
def test_hard_and_mislabelled_samples_are_no_pattern(kind):
    named = [len(peel(*cloud(kind, seed), least_noise=1)[0].stages) for seed in range(8)]
    assert sum(named) <= 1


def one_sided(seed=0, n=1200, share=0.93):
    """A mark on most samples of one class and on none of the other; the class itself is quiet."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    follows = (y == 1) | (rng.random(n) < share)
    x = rng.normal(size=(n, 30))
    x[:, 0] += 6 * ((y == 0) & follows)
    x[:, 1] += 2 * y
    return x.astype(np.float32), y, follows


def test_a_pattern_of_one_class_is_found_and_the_other_class_breaks_nothing():
    x, y, follows = one_sided()
    result, _ = peel(x, y)
    found = result.stages["stage_1"]
    assert somers(found[y == 0], follows[y == 0]) > 0.9
    assert (found[y == 1] > 0.5).all()
    assert ((found > 0.5) == follows).mean() > 0.97


def test_new_samples_are_told_as_those_of_the_ranking(tmp_path):
    from sebra.ranking.patterns import PatternModel

    x, y, follows = one_sided(n=2400)
    half = len(y) // 2
    patterns = peel(x[:half], y[:half])[0].patterns
    told = patterns.follows(torch.from_numpy(x[half:]), torch.from_numpy(y[half:]))
    assert told.shape == (half, len(patterns.heads))
    assert ((told[:, 0] > 0.5) == follows[half:]).mean() > 0.97
    patterns.save(tmp_path / "p.safetensors")
    again = PatternModel.load(tmp_path / "p.safetensors")
    other = again.follows(torch.from_numpy(x[half:]), torch.from_numpy(y[half:]))
    np.testing.assert_allclose(other, told, atol=1e-5)


def test_what_rests_on_a_pattern_is_said_with_its_uncertainty():
    x, y, follows = pictures(1)
    result, _ = peel(x, y)
    (pattern, *_) = result.details["patterns"]
    assert pattern["chance"] <= 0.01
    for side, name in ((follows[0], "with_it"), (~follows[0], "against_it")):
        figures = pattern[name]
        assert figures["low"] <= figures["accuracy"] <= figures["high"]
        assert figures["samples"] == pytest.approx(side.sum(), rel=0.2)
    assert pattern["with_it"]["low"] > pattern["against_it"]["high"]
    assert pattern["against_it"]["accuracy"] < pattern["without_it"] < 100
    assert pattern["share"] == pytest.approx(
        [f.mean() for f in (follows[0][y == 0], follows[0][y == 1])], abs=0.05
    )


def many_classes(classes, n, seed=0):
    """A loud cue with a value for each class, followed by nine of ten, and the class itself."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    follows = rng.random(n) < 0.9
    cue = np.where(follows, y, (y + rng.integers(1, classes, n)) % classes)
    means = rng.normal(size=(2, classes, 8))
    means /= np.linalg.norm(means, axis=2, keepdims=True)
    x = rng.normal(size=(n, 24))
    x[:, :8] += 6 * means[0][cue]
    x[:, 8:16] += 1.5 * means[1][y]
    return x.astype(np.float32), y, follows


@pytest.mark.parametrize("classes", [5, 20])
def test_of_many_classes_the_one_told_counts_not_half_of_the_chance(classes):
    """A label is told where it is likeliest; with twenty classes few reach one half."""
    x, y, follows = many_classes(classes, 3000)
    result, _ = peel(x, y)
    assert "stage_1" in result.stages
    assert somers(result.stages["stage_1"], follows) > 0.6
    rank = ranks_within_classes(result.bucket, result.score, y)
    by_class = [somers(-rank[y == c], follows[y == c]) for c in range(classes)]
    assert np.mean(by_class) > 0.75


def test_a_run_stopped_between_noise_and_stage_gives_the_same_ranking(tmp_path, monkeypatch):
    """With networks and wrong labels a second stage trains twice under one name."""
    from dataclasses import replace

    from ranking.toys import noisy_pictures
    from sebra.ranking import evidence, peel, retraining
    from sebra.ranking.noise import estimate_noise

    monkeypatch.setattr(evidence.Evidence, "chance", lambda *_: 0.0)
    task, labels = noisy_pictures()
    found = estimate_noise(task)
    doubted = replace(found, noise=np.minimum(found.noise, 0.8))  # so that some still count
    monkeypatch.setattr(peel, "estimate_noise", lambda _: doubted)
    monkeypatch.setattr(retraining, "_PART", 15)
    config = PeelConfig(folds=2, steps=30, batch=32, lr=0.02, stages=2, flip=False)
    train = retraining.train_epoch
    calls = 0

    def run(session, stop=None):
        nonlocal calls
        calls = 0

        def counted(*arguments, **named):
            nonlocal calls
            if calls == stop:
                raise KeyboardInterrupt
            calls += 1
            return train(*arguments, **named)

        monkeypatch.setattr(retraining, "train_epoch", counted)
        result = PeelRanker(config).rank(task, session, Blind())
        return ranks_within_classes(result.bucket, result.score, labels)

    whole = run(Session())
    total = calls
    assert total == 12  # the second stage's noise among them
    for stop in (3, 10):  # in the first stage; between the noise of the second and the stage itself
        folder = tmp_path / str(stop)
        folder.mkdir()
        with pytest.raises(KeyboardInterrupt):
            run(Session(folder, {}, every_seconds=0), stop)
        again = run(Session(folder, {}, resume=True, every_seconds=0))
        assert (again == whole).all(), f"stopped before part {stop}"


def test_two_rankings_in_one_folder_keep_their_own_patterns(tmp_path):
    """A benchmark keeps many tables side by side; each is loaded with what tells its stages."""
    import pandas as pd

    from sebra.ranking.ranking import Ranking

    found = {}
    for name, seed in (("first", 0), ("second", 1)):
        x, y, _ = one_sided(seed)
        ranking = Ranking(
            pd.DataFrame(
                {
                    "id": [str(i) for i in range(len(y))],
                    "label": y.astype(str),
                    "rank": np.arange(len(y)),
                    "bucket": 0,
                    "spuriosity": 0.5,
                }
            )
        )
        ranking.patterns = peel(x, y)[0].patterns
        ranking.save(tmp_path / f"{name}.parquet")
        found[name] = ranking.patterns
    for name, patterns in found.items():
        again = Ranking.load(tmp_path / f"{name}.parquet").patterns
        assert again is not None
        assert torch.equal(again.heads, patterns.heads)
    assert not torch.equal(found["first"].heads, found["second"].heads)
