"""The contrastive objective against loops, and what its choices do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from debiasing.toys import SETTINGS, features, images
from sebra.debiasing import contrastive
from sebra.debiasing import sebra as sebra_method
from sebra.debiasing import stages as stages_module
from sebra.debiasing.contrastive import (
    ContrastiveConfig,
    PairLoss,
    partners_of,
    positive_weights,
)
from sebra.debiasing.contrastive_loss import contrastive_loss
from sebra.debiasing.method import Guide, Help
from sebra.debiasing.sebra import Sebra
from sebra.debiasing.selection import Selector
from sebra.engine.session import Session


def naive(z: Tensor, pos: Tensor, neg: Tensor, tau: float, denominator: str) -> float:
    """The paper's formula, one exponential at a time."""

    def cosine(a: Tensor, b: Tensor) -> float:
        return sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) / (
            math.sqrt(sum(float(x) ** 2 for x in a)) * math.sqrt(sum(float(y) ** 2 for y in b))
        )

    tops = [[math.exp(cosine(z[i], p) / tau) for p in pos[i]] for i in range(len(z))]
    rest = [[math.exp(cosine(z[i], q) / tau) for q in neg[i]] for i in range(len(z))]
    whole = sum(map(sum, tops)) + sum(map(sum, rest))
    total, count = 0.0, 0
    for top, other in zip(tops, rest, strict=True):
        bottom = sum(top) + sum(other) if denominator == "anchor" else whole
        for value in top:
            total -= math.log(value / bottom)
            count += 1
    return total / count


@pytest.mark.parametrize("denominator", ["anchor", "batch"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 2)])
def test_equals_the_formula(denominator: str, m: int, n: int) -> None:
    generator = torch.Generator().manual_seed(m * 10 + n)
    z = torch.randn(5, 4, generator=generator)
    pos = torch.randn(5, m, 4, generator=generator)
    neg = torch.randn(5, n, 4, generator=generator)
    found = contrastive_loss(z, pos, neg, 0.3, denominator)
    assert float(found) == pytest.approx(naive(z, pos, neg, 0.3, denominator), rel=1e-5)


def test_falls_when_the_positive_comes_nearer_and_the_negative_goes_away() -> None:
    z = torch.tensor([[1.0, 0.0]])
    near, far = torch.tensor([[[0.9, 0.1]]]), torch.tensor([[[-1.0, 0.2]]])
    good = contrastive_loss(z, near, far, 0.1, "anchor")
    bad = contrastive_loss(z, far, near, 0.1, "anchor")
    assert float(good) < 0.01 < float(bad)


def _guide(p: list[float] | None, noise: list[float] | None) -> Guide:
    n = len(p or noise or [])
    zeros = torch.zeros(n, dtype=torch.long)
    values = {k: torch.tensor(v) for k, v in (("p", p), ("noise", noise)) if v is not None}
    return Guide(zeros, zeros, torch.zeros(n), **values)


def test_hard_positives_weigh_more_up_to_a_limit() -> None:
    weights = positive_weights(_guide([0.9, 0.5, 0.1, 0.05, 0.001, 1.0], None), hard=2.0)
    expected = [math.log(max(p, 0.05)) ** 2 for p in (0.9, 0.5, 0.1, 0.05, 0.001)]
    assert torch.allclose(weights[:5], torch.tensor(expected))
    assert 0 < weights[5] < 1e-5


def test_few_flagged_samples_keep_their_weight_and_many_lose_it() -> None:
    few = positive_weights(_guide(None, [0.0] * 199 + [0.9]), hard=2.0)
    assert float(few[-1]) == pytest.approx(0.1 ** (2 / 200 / 0.05))
    many = positive_weights(_guide([0.1] * 20, [0.0] * 18 + [0.9, 1.0]), hard=1.0)
    assert torch.allclose(many[-2] / many[0], torch.tensor(0.01))
    assert 0 < many[-1] < 1e-5


@pytest.mark.parametrize(("hard", "least", "most"), [(0.0, 0.05, 0.25), (2.0, 0.9, 1.0)])
def test_positives_lean_to_what_is_hard(
    monkeypatch: pytest.MonkeyPatch, hard: float, least: float, most: float
) -> None:
    """In a ranking of one bucket, where only p tells who breaks the shortcut."""
    toy = features()
    guide, conflicting = toy.guide(), toy.conflicting.float()
    wide = replace(guide, bucket=torch.zeros_like(guide.bucket), p=1 - 0.9 * conflicting)
    monkeypatch.setattr(sebra_method, "fit_pairs", lambda *given: given)
    method = Sebra(contrastive.ContrastiveConfig(hard=hard))
    given: Any = method.fit(toy.train, replace(toy.help(method.needs), guide=wide), Session())
    index = torch.arange(len(toy.train))
    rand = torch.rand(len(index), 8, generator=torch.Generator().manual_seed(0))
    assert least < float(conflicting[given[4].draw(index, rand)].mean()) <= most


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {2, 3, 4, 5}),
        ({"rank_gap": 8}, {2, 3, 4, 5}),
        ({"hard": 4.0}, {3, 5}),
        ({"pairs": "buckets"}, {1, 2, 3, 4, 5}),
        ({"pairs": "buckets", "rank_gap": 5}, {5}),
    ],
)
def test_stages_read_the_same_settings(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], expected: set[int]
) -> None:
    """Two samples of each pattern; the second of each was by far the harder one."""
    stages = torch.tensor([[0.9, 0.9], [0.9, 0.1], [0.1, 0.9]]).repeat_interleave(2, 0)
    p = torch.tensor([0.999, 0.05]).repeat(3)
    guide = Guide(torch.arange(6), torch.arange(6), torch.zeros(6), stages, p)
    monkeypatch.setattr(stages_module, "fit_pairs", lambda *given, order: given)
    monkeypatch.setattr(stages_module, "_LEAST", 1)
    method = stages_module.Stages(stages_module.StagesConfig(**settings))
    toy = features(classes=2, train=6)
    task = replace(toy.train, rows=toy.train.rows[:6], targets=torch.zeros(6, dtype=torch.long))
    given: Any = method.fit(task, Help(Selector(None, "last epoch"), guide), Session())
    rand = torch.linspace(0.01, 0.99, 400)[None]
    assert set(given[4].draw(torch.tensor([0]), rand).flatten().tolist()) == expected


def test_published_partners_are_embedded_in_evaluation_mode(monkeypatch):
    """Their statistics do not enter the network, and they are those of a network at rest."""
    toy = images()
    config = ContrastiveConfig(**{**SETTINGS["images"], "partners": "published"}, crop=1.0)
    network = toy.train.network().train()
    pos, neg = partners_of(toy.train.targets, toy.guide().bucket, toy.guide(), config, 1, Session())
    loss = PairLoss(toy.train, network, config, pos, neg)
    index = torch.arange(32)
    rand = torch.rand(32, loss.randoms, generator=torch.Generator().manual_seed(0))
    seen = {}

    def noted(anchor, positive, negative, tau, denominator):
        seen.update(anchor=anchor, positive=positive, negative=negative)
        return anchor.sum() * 0

    monkeypatch.setattr("sebra.debiasing.contrastive.contrastive_loss", noted)
    loss(index, rand)
    assert network.training
    fresh = toy.train.network().eval()
    fresh.load_state_dict(network.state_dict())
    drawn = neg.draw(index, rand[:, 1:2])[:, 0]
    expected = fresh.embed(toy.train.batch(drawn))
    torch.testing.assert_close(seen["negative"][:, 0], expected)
    assert seen["anchor"].requires_grad
    assert not seen["positive"].requires_grad
    twice = torch.stack([index, pos.draw(index, rand[:, :1])[:, 0]], 1).flatten()
    again = toy.train.network().train()
    again.embed(toy.train.batch(twice))
    torch.testing.assert_close(again.state_dict(), network.state_dict())
