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
from sebra.ranking.peel import PeelConfig, PeelRanker, Stage
from sebra.ranking.ranking import Blind, ranks_within_classes, spuriosity_of
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
    assert any("no shortcut" in note for note in session.notes)
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


def test_a_higher_demand_on_evidence_refuses_weaker_stages():
    x, y, _ = pictures(2)
    assert len(peel(x, y, evidence=0.975)[0].stages) <= 1


def test_a_stage_stands_where_two_classes_have_enough_samples_that_break_it():
    labels = np.repeat([0, 1, 2], 20)
    ranker = PeelRanker(PeelConfig(least=8))

    def stands(*broken):
        margin = np.ones(60)
        for c, count in enumerate(broken):
            margin[20 * c : 20 * c + count] = -1
        return ranker._stands(Stage(margin, margin, 1.0, 1.0, 1.0, np.zeros(60)), labels)

    assert stands(8, 0, 8)
    assert not stands(20, 7, 7)
    assert not stands(0, 0, 0)


@pytest.mark.parametrize(
    ("evidence", "strength", "accuracy", "doubt", "stands"),
    [
        (0.67, 0.80, 0.90, 0.025, True),  # enough by itself
        (0.655, 0.84, 0.85, 0.025, True),  # a little less, and the first model goes by it
        (0.655, 0.84, 0.80, 0.025, True),
        (0.645, 0.84, 0.85, 0.025, False),
        (0.655, 0.78, 0.88, 0.025, False),  # the first model tells the class better: clean data
        (0.655, 0.84, 0.70, 0.025, False),  # or worse: it does not go by this
        (0.655, 0.84, 0.85, 0.0, False),
    ],
)
def test_a_little_less_evidence_is_enough_for_what_the_first_model_goes_by(
    evidence, strength, accuracy, doubt, stands
):
    labels, margin = np.repeat([0, 1], 20), np.tile([-1.0, 1.0], 20)
    stage = Stage(margin, margin, accuracy, evidence / strength, strength, np.zeros(40))
    assert PeelRanker(PeelConfig(doubt=doubt))._stands(stage, labels) is stands


@pytest.mark.parametrize(("evidence", "cut"), [(0.7, True), (0.655, False)])
def test_a_doubtful_stage_orders_by_degree_and_is_named_all_the_same(evidence, cut):
    """One sample breaks the second shortcut by a hair and is easy, the other follows it so."""
    n = 40
    labels = np.repeat([0, 1], n // 2)
    first, second, easy = np.ones(n), np.tile([2.0, -2.0], n // 2), np.zeros(n)
    second[:2], easy[:2] = (-0.01, 0.01), (3.0, -3.0)
    stages = [
        Stage(margin, easy, 0.85, e / 0.85, 0.85, np.zeros(n))
        for margin, e in ((first, 0.9), (second, evidence), (second, 0.5))
    ]
    result = PeelRanker(PeelConfig())._result(stages[:2], stages, labels, None)
    assert list(result.stages) == ["stage_1", "stage_2"]
    breaks_by_a_hair, follows_by_a_hair = result.bucket[0], result.bucket[1]
    assert bool(breaks_by_a_hair > follows_by_a_hair) is cut


def test_settings_out_of_range_are_refused():
    with pytest.raises(UsageError, match="evidence"):
        PeelConfig(evidence=0)


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
    from sebra.ranking import crossfit, peel
    from sebra.ranking.noise import estimate_noise

    task, labels = noisy_pictures()
    found = estimate_noise(task)
    doubted = replace(found, noise=np.minimum(found.noise, 0.8))  # so that some still count
    monkeypatch.setattr(peel, "estimate_noise", lambda _: doubted)
    config = PeelConfig(
        folds=2, steps=100, batch=32, lr=0.01, evidence=0.2, least=1, stages=2, flip=False
    )
    train = crossfit.train_epoch
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

        monkeypatch.setattr(crossfit, "train_epoch", counted)
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


@pytest.mark.parametrize(
    ("noisy", "words"), [(False, "too few samples of two classes"), (True, "look mislabelled")]
)
def test_why_nothing_stands_is_said_as_it_is(noisy, words):
    easy = np.linspace(-1, 1, 40)
    stage = Stage(easy, easy, 0.9, 0.95, 0.95, np.full(40, 0.5 if noisy else 0.0))
    assert stage.evidence > 0.8
    assert words in PeelRanker(PeelConfig())._why_not(stage)
    weak = Stage(easy, easy, 0.9, 0.5, 0.5, np.zeros(40))
    assert "share no property" in PeelRanker(PeelConfig())._why_not(weak)
