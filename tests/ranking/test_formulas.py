"""The closed forms against what they are closed forms of."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from ranking.naive import lambda_of, lower_root_of
from sebra.errors import UsageError
from sebra.ranking.formulas import (
    is_learned,
    p_critical_of,
    upweight,
    weighted_loss,
)
from sebra.ranking.sebra import SebraConfig

betas = st.floats(0.2, 3.0)
probabilities = st.floats(1e-4, 1 - 1e-6)


def u_objective(u: float, p: float, beta: float) -> float:
    return -u * math.log(p) + beta * (u * math.log(u) - u)


def exact_v(p: float, lam: float, beta: float) -> int:
    """argmax over {0, 1} of v·(u·CE - lambda)."""
    gain = -(p ** (1 / beta)) * math.log(p) - lam
    return max((0, 1), key=lambda v: v * gain)


@given(probabilities, betas)
def test_u_minimises_its_objective(p, beta):
    best = minimize_scalar(
        u_objective, bounds=(1e-12, 1.5), args=(p, beta), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert upweight(p, beta) == pytest.approx(best.x, abs=2e-5)


@pytest.mark.parametrize("beta", [0.5, 0.8, 1.0, 1.25, 1.42])
@pytest.mark.parametrize("p", [0.05, 0.3, 0.75, 0.99])
def test_u_is_the_lowest_point_of_a_grid(p, beta):
    grid = np.linspace(1e-4, 1.2, 12_000)
    values = [u_objective(u, p, beta) for u in grid]
    assert upweight(p, beta) == pytest.approx(grid[int(np.argmin(values))], abs=2e-4)


@given(probabilities, st.floats(0.01, 0.99), betas)
def test_v_is_the_maximiser_above_the_turning_point_and_stays_one_below_the_lower_root(
    p, share, beta
):
    lam = share * beta / math.e
    upper, lower = p_critical_of(lam, beta), lower_root_of(lam, beta)
    v = 0 if bool(is_learned(torch.tensor(p, dtype=torch.float64), upper)) else 1
    if min(abs(p - upper), abs(p - lower)) < 1e-6:
        return  # on the threshold itself rounding decides
    if p >= math.exp(-beta):
        assert v == exact_v(p, lam, beta)
    elif p < lower:
        assert exact_v(p, lam, beta) == 0  # what the objective alone would say
        assert v == 1  # the departure: surely wrong is not learned
    else:
        assert v == exact_v(p, lam, beta) == 1


@given(st.floats(0.0, 1.0), betas)
def test_threshold_and_lambda_invert_each_other_on_the_upper_branch(share, beta):
    turning = math.exp(-beta)
    p = turning + (1 - turning) * (0.01 + 0.98 * share)
    assert p_critical_of(lambda_of(p, beta), beta) == pytest.approx(p, rel=1e-5)


@given(st.floats(0.001, 0.999), betas)
def test_both_roots_solve_the_equation_and_enclose_the_turning_point(share, beta):
    lam = share * beta / math.e
    upper, lower = p_critical_of(lam, beta), lower_root_of(lam, beta)
    assert lower < math.exp(-beta) < upper
    for root in (lower, upper):
        assert lambda_of(root, beta) == pytest.approx(lam, rel=1e-6)


def test_the_ends_of_the_range_of_lambda():
    assert p_critical_of(0.0, 1.25) == 1.0
    assert lower_root_of(0.0, 1.25) == 0.0
    for beta in (0.3, 0.8, 1.25, 1.42):  # at the largest lambda the two roots meet
        for root in (p_critical_of, lower_root_of):
            assert root(beta / math.e, beta) == pytest.approx(math.exp(-beta), rel=1e-4)


@pytest.mark.parametrize("lam", [-0.01, 1.25 / math.e + 1e-9, 3.0])
def test_a_lambda_without_a_threshold_is_refused(lam):
    for formula in (p_critical_of, lower_root_of):
        with pytest.raises(UsageError, match="beta/e"):
            formula(lam, 1.25)


def test_the_papers_imagenet_threshold_is_on_the_lower_branch():
    lam = lambda_of(0.1, 1.42)
    assert lam == pytest.approx(0.455, abs=5e-4)
    assert p_critical_of(lam, 1.42) == pytest.approx(0.450, abs=5e-4)
    assert lower_root_of(lam, 1.42) == pytest.approx(0.1, rel=1e-6)
    # So lambda cannot stand in for it: the threshold itself must be a setting.
    assert SebraConfig(p_critical=0.1, beta=1.42).p_critical == 0.1
    assert SebraConfig(lam=lam, beta=1.42).p_critical == pytest.approx(0.450, abs=5e-4)


@pytest.mark.parametrize("use_u", [True, False])
def test_the_weighted_loss_and_its_gradient_treat_u_as_a_constant(use_u):
    torch.manual_seed(0)
    logits = torch.randn(6, 3, dtype=torch.float32, requires_grad=True)
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    loss = weighted_loss(logits, targets, 1.25, use_u)
    loss.backward()
    value, expected = 0.0, np.zeros((6, 3))
    for i in range(6):
        row = logits[i].detach().double().numpy()
        p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        u = p[targets[i]] ** (1 / 1.25) if use_u else 1.0
        value += u * -math.log(p[targets[i]]) / 6
        expected[i] = u * (p - np.eye(3)[targets[i]]) / 6
    assert float(loss.detach()) == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(logits.grad.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"p_critical": 0.0}, {"p_critical": 1.0}, {"beta": 0.0}, {"epochs": 0}, {"draws": "some"},
        {"resolution": "fine"}, {"optimizer": "lbfgs"}, {"lr": -1.0},
        {"batch": -1}, {"crop": 0.0}, {"lam": 9.0}, {"lam": 0.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_settings_without_sense_are_refused_by_name(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        SebraConfig(**wrong)
