"""Who is kept: never a model over the budget, never one that gains less than it costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sebra.debiasing.choosing import Jury, ahead, even, groups_of, how_sure, temperature


def judged(n=2000, seed=0):
    """Two classes, a pattern that nine in ten follow; group numbers 0 to 3."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    breaks = rng.random(n) < 0.1
    return torch.from_numpy(y), torch.from_numpy(2 * y + breaks), torch.from_numpy(breaks)


def said(y, wrong):
    """Logits that tell all samples but these."""
    return torch.nn.functional.one_hot(torch.where(wrong, 1 - y, y), 2).float()


def model(y, breaks, usual, rare, seed=0):
    """Right for these shares of samples that follow the pattern and of those that break it."""
    chance = torch.rand(len(y), generator=torch.Generator().manual_seed(seed))
    return said(y, chance > torch.where(breaks, rare, usual))


def chosen(jury, candidates, budget):
    """The position of what is kept where all but the first lie on one way."""
    place = jury.choose(candidates[0], [candidates[1:]], budget)
    return 0 if place is None else 1 + place[1]


def test_figures_are_those_of_a_count_by_hand():
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    groups = torch.tensor([7, 7, 3, 4, 4, 4])
    wrong = torch.tensor([True, False, False, False, False, True])
    jury = Jury(y, groups)
    found = jury.figures(jury.right(said(y, wrong)))
    assert found.accuracy == pytest.approx(100 * 4 / 6)
    assert found.balanced == pytest.approx(100 * (1 / 2 + 1 + 2 / 3) / 3)
    assert found.worst == pytest.approx(100 * 2 / 4)  # one of two, with one more hit and miss


def test_ordinary_accuracy_counts_samples_as_the_training_set_has_them():
    y = torch.tensor([0, 0, 1, 1])
    jury = Jury(y, y, ordinary=torch.tensor([3.0, 3.0, 1.0, 1.0]))
    found = jury.figures(jury.right(said(y, y == 1)))
    assert found.accuracy == pytest.approx(75)
    assert found.balanced == pytest.approx(50)


def test_cost_is_of_samples_that_count_their_share():
    y, groups, breaks = judged()
    jury = Jury(y, groups)
    plain, other = (jury.right(said(y, w)) for w in (breaks, ~breaks))
    share = float(breaks.double().mean())
    assert jury.cost(plain, other) == pytest.approx(100 * (1 - 2 * share))
    assert jury.cost(plain, plain) == 0


@pytest.mark.parametrize("budget", [0.0, 1.0, 3.0, 6.0, 12.0])
def test_the_kept_one_is_within_the_budget_and_a_larger_one_gains_as_much(budget):
    y, groups, breaks = judged()
    jury = Jury(y, groups)
    shares = [(0.98, 0.4), (0.975, 0.6), (0.96, 0.7), (0.94, 0.8), (0.9, 0.85), (0.8, 0.8)]
    candidates = [model(y, breaks, *pair) for pair in shares]
    plain = jury.right(candidates[0])
    kept = chosen(jury, candidates, budget)
    assert jury.cost(plain, jury.right(candidates[kept])) <= budget
    for smaller in (b for b in (0.0, 1.0, 3.0, 6.0, 12.0) if b < budget):
        before = jury.figures(jury.right(candidates[chosen(jury, candidates, smaller)]))
        after = jury.figures(jury.right(candidates[kept]))
        assert after.worst + after.balanced >= before.worst + before.balanced
        assert after.accuracy <= before.accuracy


def test_over_the_budget_even_a_perfect_worst_group_is_not_kept():
    y, groups, breaks = judged()
    candidates = [said(y, breaks), model(y, breaks, 0.85, 1.0)]
    jury = Jury(y, groups)
    cost = jury.cost(*(jury.right(c) for c in candidates))
    assert 0 < cost < 7
    assert chosen(jury, candidates, cost - 0.5) == 0
    assert chosen(jury, candidates, cost + 2.0) == 1


def test_what_loses_in_the_mean_over_groups_is_not_kept():
    """Better in the worst group alone, worse in the mean over groups."""
    y = torch.arange(400) % 2
    groups = torch.arange(400) % 4
    wrong_plain = (groups == 0) & (torch.arange(400) < 40)
    wrong_other = (groups != 0) & (torch.arange(400) < 36)
    candidates = [said(y, wrong_plain), said(y, wrong_other)]
    jury = Jury(y, groups)
    worst = [jury.figures(jury.right(c)).worst for c in candidates]
    assert worst[1] > worst[0]
    assert chosen(jury, candidates, 100.0) == 0


def test_of_those_that_fit_the_strongest_is_kept():
    """Not the one with the best figure: a handful of samples that break a pattern cannot say."""
    y, groups, breaks = judged()
    jury = Jury(y, groups)
    candidates = [model(y, breaks, *pair) for pair in [(0.98, 0.4), (0.975, 0.8), (0.97, 0.6)]]
    plain, mild, strong = map(jury.surprise, candidates)
    assert mild < strong < plain
    assert chosen(jury, candidates, 3.0) == 2


def test_of_the_ways_the_one_is_kept_that_tells_even_groups_best():
    """What stands for a way is its strongest that fits, though another way has a stronger one."""
    y, groups, breaks = judged()
    jury = Jury(y, groups)
    plain = model(y, breaks, 0.98, 0.4)
    costly = [model(y, breaks, *pair) for pair in [(0.975, 0.5), (0.85, 0.99)]]
    cheap = [model(y, breaks, *pair) for pair in [(0.975, 0.45), (0.97, 0.7)]]
    dear = [model(y, breaks, 0.6, 0.9)]
    assert jury.choose(plain, [costly, cheap, dear], 3.0) == (1, 1)
    assert jury.choose(plain, [costly, cheap, dear], 15.0) == (0, 1)
    assert jury.choose(plain, [dear], 3.0) is None


def test_equals_leave_plain_training_alone():
    y, groups, breaks = judged()
    assert chosen(Jury(y, groups), [said(y, breaks)] * 3, 100.0) == 0


def test_sides_of_every_pattern():
    y, groups, breaks = judged()
    stages = torch.stack([(~breaks).float(), torch.ones(len(y))], 1)
    first, second = Jury(y, groups).sides(said(y, breaks), stages)
    assert first["with"] == {"accuracy": 100, "n": int((~breaks).sum())}
    assert first["against"] == {"accuracy": 0, "n": int(breaks.sum())}
    assert second["against"] == {"accuracy": None, "n": 0}


def test_rare_patterns_join_another_and_classes_stay_apart():
    y = torch.tensor([0] * 10 + [1] * 10)
    stages = torch.ones(20, 1)
    stages[:2] = 0
    stages[10:15] = 0
    groups = groups_of(stages, y, least=4)
    assert len(set(groups[:10].tolist())) == 1
    assert groups[10:15].unique().numel() == groups[15:].unique().numel() == 1
    assert groups.unique().numel() == 3


@pytest.mark.parametrize(("balance", "mass"), [(0.0, [1, 9]), (0.5, [1, 3]), (1.0, [1, 1])])
def test_balance_goes_from_as_drawn_to_alike(balance, mass):
    groups = torch.tensor([0] * 4 + [2] * 36)
    weights = even(groups, balance)
    found = [float(weights[groups == g].sum()) for g in (0, 2)]
    assert found[1] / found[0] == pytest.approx(mass[1] / mass[0])


def test_how_far_ahead_is_the_mean_gain_over_its_standard_error():
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(2, size=400))
    signal = F.one_hot(y, 2).double() * 2
    good = signal + torch.from_numpy(rng.normal(size=(400, 2)))
    weak = 0.3 * signal + torch.from_numpy(rng.normal(size=(400, 2)))
    ones = torch.ones(400)
    surprises = []
    for logits in (good, weak):
        calm = logits / temperature(logits, y, ones)
        surprises.append(F.cross_entropy(calm, y, reduction="none").numpy())
    gain = surprises[1] - surprises[0]
    expected = gain.mean() / (gain.std() / 20)
    assert ahead(good, weak, y, ones) == pytest.approx(expected, rel=1e-6)
    assert ahead(weak, good, y, ones) == pytest.approx(-expected, rel=1e-6)
    assert ahead(good, good, y, ones) == 0
    # Samples that count nothing say nothing.
    few = torch.cat([torch.ones(200), torch.zeros(200)])
    halves = [good[:200], weak[:200], y[:200], ones[:200]]
    assert ahead(good, weak, y, few) == pytest.approx(ahead(*halves), rel=1e-6)


def test_a_sample_counts_in_its_group_by_how_far_it_breaks_the_pattern():
    margins = torch.tensor([[2.0, 1.0], [-0.5, 1.0], [-1.5, 1.0], [-3.0, -0.25]])
    sure = how_sure(torch.sigmoid(margins))
    assert sure.tolist() == pytest.approx([1.0, 0.5, 1.5, 0.25], rel=1e-4)
    groups = torch.tensor([0, 1, 1, 2])
    weights = even(groups, 1.0, sure)
    assert weights.tolist() == pytest.approx([1.0, 0.25, 0.75, 1.0], rel=1e-4)
    alike = even(groups, 1.0)
    assert alike.tolist() == [1.0, 0.5, 0.5, 1.0]
