"""The ranking loop: against a naive one, on a toy with a known answer, and its resolution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranking.naive import Naive
from ranking.toys import images, noisy, planted, task_of
from sebra.engine.session import Session
from sebra.errors import CollapsedError, UsageError
from sebra.measuring.ranks import by_class, somers_d
from sebra.ranking import sebra as module
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Blind, Ranking
from sebra.ranking.registry import RANKERS, ranker_class
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker
from sebra_bench.baselines.rankers import ErmConfig, ErmRanker, RandomConfig, RandomRanker

PLAIN = {
    "epochs": 6, "lr": 2.0, "momentum": 0.5, "weight_decay": 0.01, "batch": 16, "flip": False,
    "resolution": "epoch", "p_critical": 0.6,
}  # fmt: skip
FEATURES = {"epochs": 15, "lr": 0.15, "weight_decay": 0.0, "batch": 0, "flip": False}


class Recorder(Blind):
    """Keeps the weights, the learned samples and the loss of every round."""

    def __init__(self) -> None:
        self.rounds = []

    def round(self, number, network, loss, learned):
        head = network.head
        self.rounds.append(
            (
                head.weight.detach().clone().numpy(),
                head.bias.detach().clone().numpy(),
                learned.clone().numpy(),
                loss,
            )
        )


def ranked(task, session=None, monitor=None, **settings):
    return SelfGuidedRanker(SebraConfig(**settings)).rank(
        task, session or Session(), monitor or Blind()
    )


@pytest.mark.parametrize("use_v", [True, False])
@pytest.mark.parametrize("use_u", [True, False])
@pytest.mark.parametrize("draws", ["full", "remaining"])
def test_agrees_step_by_step_with_the_naive_loop(draws, use_u, use_v):
    task = noisy(n=50)
    seen = Recorder()
    found = ranked(task, monitor=seen, draws=draws, use_u=use_u, use_v=use_v, **PLAIN)
    network = task.network()
    x = (task.batch(torch.arange(len(task))) - network.shift) * network.scale
    naive = Naive(x.numpy(), task.targets, 3, 2.0, 0.5, 0.01, 1.25, 0.6)
    rounds, bucket, u = naive.rank(6, 16, task.generator(), draws, use_u, use_v)

    assert len(seen.rounds) == len(rounds)
    for (weight, bias, learned, loss), expected in zip(seen.rounds, rounds, strict=True):
        np.testing.assert_allclose(weight, expected.weights, atol=1e-4)
        np.testing.assert_allclose(bias, expected.bias, atol=1e-4)
        np.testing.assert_array_equal(learned, expected.learned)
        assert loss == pytest.approx(expected.loss, abs=1e-4)
    np.testing.assert_array_equal(found.bucket, bucket)
    np.testing.assert_allclose(found.score, u, atol=1e-4)
    for b in np.unique(bucket):  # the order inside a bucket is that of u
        members = np.flatnonzero(bucket == b)
        np.testing.assert_array_equal(
            members[np.argsort(-found.score[members])], members[np.argsort(-u[members])]
        )
    # The toy is one in which something happens: several buckets, and some samples never learned.
    assert len(np.unique(bucket)) >= 3


def test_the_switches_change_the_ranking():
    task = noisy(n=50)
    scores = [
        ranked(task, use_u=u, use_v=v, **PLAIN).score for u in (True, False) for v in (True, False)
    ]
    for i in range(4):
        for j in range(i):
            assert not np.allclose(scores[i], scores[j], atol=1e-3)


def test_a_planted_bias_is_ranked_before_the_samples_that_break_it():
    task, conflicting = planted()
    found = ranked(task, **FEATURES)
    labels = task.targets.numpy()
    rank = ranks_within_classes(found.bucket, found.score, labels)
    quality = by_class(somers_d, rank, conflicting.astype(int), labels)
    assert len(quality) == 2
    assert min(quality.values()) > 0.9


def test_plain_training_and_chance_as_rankers():
    task, conflicting = planted()
    labels = task.targets.numpy()
    erm = ErmRanker(ErmConfig(**FEATURES)).rank(task, Session(), Blind())
    chance = RandomRanker(RandomConfig()).rank(task, Session(), Blind())
    ranks = [ranks_within_classes(r.bucket, r.score, labels) for r in (erm, chance)]
    d = [np.mean(list(by_class(somers_d, r, conflicting * 1, labels).values())) for r in ranks]
    assert d[0] > 0.9
    assert abs(d[1]) < 0.3
    assert len(np.unique(chance.bucket)) == len(task)


def test_plain_training_by_its_last_epoch_forgets_when_samples_were_learned():
    """With room to learn all by heart, the order by the last probabilities says less."""
    task, conflicting = planted()
    labels = task.targets.numpy()
    long = {**FEATURES, "epochs": 200}

    def quality(by):
        found = ErmRanker(ErmConfig(**long, by=by)).rank(task, Session(), Blind())
        rank = ranks_within_classes(found.bucket, found.score, labels)
        return found, np.mean(list(by_class(somers_d, rank, conflicting * 1, labels).values()))

    (_, first), (last, by_last) = quality("first"), quality("last")
    assert (last.bucket == 0).all()
    assert np.array_equal(last.score, last.p)
    assert by_last <= first
    with pytest.raises(UsageError, match="by"):
        ErmConfig(by="middle")


def easy(n=200):
    """One epoch at a large step learns everything: the classes lie far apart."""
    rng = np.random.default_rng(1)
    y = np.arange(n) % 2
    x = rng.normal(size=(n, 4)).astype(np.float32)
    x[:, 0] += 6 * (y - 0.5) * rng.uniform(0.8, 1.2, n)
    return task_of(x, y)


@pytest.mark.parametrize("draws", ["full", "remaining"])
def test_a_step_that_would_learn_all_at_once_is_noticed_and_corrected(draws):
    settings = {**FEATURES, "lr": 20.0, "batch": 10, "draws": draws}
    coarse, fine = Session(), Session()
    swallowed = ranked(easy(), coarse, resolution="epoch", **settings)
    found = ranked(easy(), fine, resolution="auto", **settings)
    assert np.bincount(swallowed.bucket).max() > 0.9 * len(swallowed.bucket)
    assert np.bincount(found.bucket).max() <= 0.25 * len(found.bucket)
    assert coarse.notes == []
    assert len(fine.notes) == 1
    assert "25%" in fine.notes[0]
    assert "resolution=epoch" in fine.notes[0]


def test_a_step_of_the_right_size_is_left_alone(monkeypatch):
    monkeypatch.setattr(module, "MAX_SHARE", 0.95)
    task, _ = planted()
    session = Session()
    settings = {**FEATURES, "lr": 1.0}
    auto = ranked(task, session, resolution="auto", **settings)
    epoch = ranked(task, resolution="epoch", **settings)
    assert session.notes == []
    assert len(np.unique(epoch.bucket)) > 2
    np.testing.assert_array_equal(auto.bucket, epoch.bucket)


def test_a_step_too_small_to_learn_anybody_grows():
    task, _ = planted()
    settings = {**FEATURES, "lr": 0.02}
    frozen = ranked(task, resolution="epoch", **settings)
    found = ranked(task, resolution="auto", **settings)
    assert len(np.unique(frozen.bucket)) == 1
    assert "not one of the" in frozen.collapsed
    assert "--set lr=" in frozen.collapsed
    assert found.collapsed == ""
    assert len(np.unique(found.bucket)) > 3


def test_all_samples_learned_in_one_round_is_a_collapse_with_what_to_change():
    task, _ = planted()
    result = ranked(task, resolution="epoch", **{**FEATURES, "p_critical": 0.01})
    assert len(np.unique(result.bucket)) == 1
    assert "learned in the same round" in result.collapsed
    assert "--set resolution=auto" in result.collapsed
    n = len(result.bucket)
    with pytest.raises(CollapsedError, match="--set lr="):
        Ranking.from_result(result, np.arange(n), np.zeros(n, dtype=np.int64), ("a",))


def test_a_trial_of_a_few_epochs_keeps_its_order_by_u_and_says_so():
    task, _ = planted()
    session = Session()
    settings = {**FEATURES, "lr": 0.02, "epochs": 2, "resolution": "epoch"}
    trial = ranked(task, session, **settings)
    assert len(np.unique(trial.bucket)) == 1
    assert len(np.unique(trial.score)) > len(trial.score) // 2
    assert trial.collapsed == ""
    assert "all samples are in one bucket" in session.notes[0]
    still = ranked(task, **{**settings, "lr": 1e-9})
    assert "no ranking" in still.collapsed


@pytest.mark.parametrize("draws", ["full", "remaining"])
@pytest.mark.parametrize("resolution", ["epoch", "auto"])
def test_what_is_never_learned_forms_the_last_bucket_ordered_by_u(draws, resolution):
    task = noisy(n=80)
    settings = {**PLAIN, "epochs": 3, "resolution": resolution, "p_critical": 0.9}
    seen = Recorder()
    found = ranked(task, monitor=seen, draws=draws, **settings)
    learned = seen.rounds[-1][2]
    assert 0 < (~learned).sum() < len(task)
    last = found.bucket.max()
    np.testing.assert_array_equal(found.bucket == last, ~learned)
    assert last == len(seen.rounds) == found.details["rounds"]
    assert found.details["epochs"] == pytest.approx(3)
    assert found.details["learned"] == pytest.approx(learned.mean())
    weight, bias = map(torch.from_numpy, seen.rounds[-1][:2])
    network = task.network()
    x = (task.batch(torch.arange(len(task))) - network.shift) * network.scale
    p = (x @ weight.T + bias).softmax(1)[torch.arange(len(task)), task.targets].numpy()
    np.testing.assert_allclose(found.score[~learned], p[~learned] ** 0.8, rtol=1e-4)


# peel draws nothing over arrays
@pytest.mark.parametrize("name", sorted(set(RANKERS) - {"random", "peel"}))
def test_a_seed_repeats_itself_and_another_differs(name):
    kind = ranker_class(name)
    wanted = {**FEATURES, "epochs": 3, "batch": 16}
    fields = kind.config_class.__dataclass_fields__
    config = kind.config_class(**{k: v for k, v in wanted.items() if k in fields})
    one, again, other = (
        kind(config).rank(noisy(seed=0) if s == 0 else reseeded(s), Session(), Blind())
        for s in (0, 0, 5)
    )
    np.testing.assert_array_equal(one.bucket, again.bucket)
    np.testing.assert_array_equal(one.score, again.score)
    assert not np.array_equal(one.score, other.score)


def reseeded(seed):
    """The same data under another seed."""
    from dataclasses import replace

    return replace(noisy(seed=0), seed=seed)


def test_ranks_images_with_augmentation_and_repeats_itself():
    settings = {"epochs": 2, "optimizer": "adam", "lr": 3e-3, "batch": 8, "crop": 0.7}
    one, again = (ranked(images(), **settings) for _ in range(2))
    np.testing.assert_array_equal(one.score, again.score)
    plain = ranked(images(), **{**settings, "crop": 1.0, "flip": False})
    assert not np.array_equal(one.score, plain.score)


@pytest.mark.gpu
def test_the_captured_step_ranks_like_the_plain_one():
    from dataclasses import replace

    from sebra.loading.inputs import Inputs
    from sebra.samples.table import FeatureArray

    task, conflicting = planted()
    cuda = torch.device("cuda")
    x = task.batch(torch.arange(len(task))).numpy()
    there = replace(
        task,
        inputs=Inputs(FeatureArray(x, np.arange(len(x))), cuda),
        rows=task.rows.cuda(),
        targets=task.targets.cuda(),
        build=lambda seed, hidden: task.build(seed, hidden).cuda(),
        device=cuda,
    )
    labels = task.targets.numpy()
    found = ranked(there, **FEATURES)
    rank = ranks_within_classes(found.bucket, found.score, labels)
    assert min(by_class(somers_d, rank, conflicting * 1, labels).values()) > 0.95


def test_it_goes_on_until_enough_are_learned_and_for_as_long_again_at_most():
    task = noisy(n=200)
    slow = {**PLAIN, "lr": 0.05, "p_critical": 0.7, "epochs": 10}
    short, full = ranked(task, **slow), ranked(task, **{**slow, "epochs": 40})
    learned = short.details["learned"]
    assert 0 < learned < full.details["learned"]
    wanted = (learned + full.details["learned"]) / 2
    longer = ranked(task, **slow, enough=wanted)
    assert longer.details["epochs"] > 10
    assert longer.details["learned"] >= wanted or longer.details["epochs"] == 20
    assert ranked(task, **slow, enough=learned).details["epochs"] == 10
    assert ranked(task, **slow, enough=1.0).details["epochs"] <= 20
    plain = ErmRanker(ErmConfig(**{**slow, "enough": 1.0})).rank(task, Session(), Blind())
    assert plain.details["epochs"] == 10


def test_a_share_of_the_draws_makes_shorter_epochs():
    task = noisy(n=64)
    seen = {draws: Recorder() for draws in ("full", "0.5", "1")}
    for draws, recorder in seen.items():
        ranked(task, monitor=recorder, **{**PLAIN, "draws": draws, "epochs": 1})
    weights = {draws: recorder.rounds[0][0] for draws, recorder in seen.items()}
    np.testing.assert_array_equal(weights["full"], weights["1"])
    assert np.abs(weights["0.5"]).sum() < np.abs(weights["full"]).sum()


@pytest.mark.parametrize("draws", ["0", "1.5", "nan", "some"])
def test_other_draws_are_refused(draws):
    with pytest.raises(UsageError, match="draws"):
        SebraConfig(draws=draws)


def test_units_and_names_of_classes_change_nothing():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = rng.normal(size=(300, 6)) + 1.5 * np.eye(3)[y] @ rng.normal(size=(3, 6))
    scale, shift = 10 ** rng.uniform(-2, 2, 6), rng.normal(size=6)
    bucket = ranked(task_of(x.astype(np.float32), y), **FEATURES).bucket
    assert len(np.unique(bucket)) > 2
    for values, labels in ((x * scale + shift, y), (x, 2 - y)):
        again = ranked(task_of(values.astype(np.float32), labels), **FEATURES).bucket
        np.testing.assert_array_equal(again, bucket)
