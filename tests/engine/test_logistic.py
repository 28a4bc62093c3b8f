"""The solver reaches the minimum that its docstring promises, however it is asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from sebra.engine.logistic import logistic_regression, logits_of


def problem(classes, n=150, d=6):
    generator = torch.Generator().manual_seed(classes)
    x = torch.randn(n, d, generator=generator, dtype=torch.double)
    y = (x[:, 0] + 0.5 * x[:, 1] + torch.randn(n, generator=generator)).argsort().argsort()
    return x, y * classes // n


def objective(head, x, y, penalty, weights=None, centre=None):
    """Sample by sample, as the docstring says."""
    head = np.asarray(head, dtype=float)
    share = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=float)
    total = 0.0
    for row, label, w in zip(x.numpy(), y.tolist(), share / share.sum(), strict=True):
        logits = row @ head[:-1] + head[-1]
        total += w * (np.log(np.exp(logits).sum()) - logits[label])
    middle = 0.0 if centre is None else np.asarray(centre, dtype=float)[:-1]
    return total + penalty / 2 * ((head[:-1] - middle) ** 2).sum()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("given", ["nothing", "weights", "centre"])
def test_it_finds_what_a_search_without_slopes_finds(classes, given):
    x, y = problem(classes, n=40, d=2)
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(40, generator=generator) ** 3 if given == "weights" else None
    centre = torch.randn(3, classes, generator=generator) if given == "centre" else None
    found = logistic_regression(x, y, classes, 0.1, weights, centre)

    def loss(flat):
        return objective(flat.reshape(3, classes), x, y, 0.1, weights, centre)

    brute = minimize(loss, np.zeros(3 * classes), method="BFGS")
    assert objective(found, x, y, 0.1, weights, centre) == pytest.approx(brute.fun, abs=1e-5)
    other = torch.from_numpy(brute.x.reshape(3, classes))
    assert torch.allclose(logits_of(x, found).softmax(1), logits_of(x, other).softmax(1), atol=5e-3)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("c", [0.01, 1.0, 100.0])
def test_it_agrees_with_scikit_learn(classes, c):
    x, y = problem(classes)
    penalty = 1.0 / (c * len(x))
    found = logistic_regression(x, y, classes, penalty)
    # One column for each class also of two, whose penalty is half of that of one difference.
    strength = c if classes > 2 else 2 * c
    other = LogisticRegression(C=strength, tol=1e-10, max_iter=5000).fit(x.numpy(), y.numpy())
    probabilities = logits_of(x, found).softmax(1).numpy()
    if classes > 2:
        theirs = np.vstack([other.coef_.T, other.intercept_])
        best = objective(theirs, x, y, penalty)
        assert objective(found, x, y, penalty) == pytest.approx(best, abs=2e-5)
    assert np.allclose(probabilities, other.predict_proba(x.numpy()), atol=1e-2)


def test_a_sample_that_weighs_two_counts_as_two():
    x, y = problem(3)
    weights = torch.ones(len(x))
    weights[:30] = 2
    twice = logistic_regression(torch.cat([x, x[:30]]), torch.cat([y, y[:30]]), 3, 0.01)
    weighted = logistic_regression(x, y, 3, 0.01, weights)
    assert torch.allclose(weighted, twice, atol=1e-2)


def test_a_strong_penalty_keeps_the_centre_and_frees_the_intercepts():
    x, y = problem(2)
    y[: len(y) // 3] = 1
    centre = torch.randn(7, 2, dtype=torch.double, generator=torch.Generator().manual_seed(3))
    found = logistic_regression(x, y, 2, 1e4, centre=centre)
    assert torch.allclose(found[:-1], centre[:-1], atol=1e-3)
    shares = logits_of(x, found).softmax(1).mean(0)
    assert torch.allclose(shares, torch.bincount(y).double() / len(y), atol=1e-2)


def test_a_start_changes_no_answer():
    x, y = problem(3)
    start = torch.randn(7, 3, generator=torch.Generator().manual_seed(2))
    cold, warm = (logistic_regression(x, y, 3, 0.01, start=s) for s in (None, start))
    assert torch.allclose(logits_of(x, cold).softmax(1), logits_of(x, warm).softmax(1), atol=1e-2)


def test_the_number_of_threads_is_as_before():
    before = torch.get_num_threads()
    x, y = problem(2)
    logistic_regression(x, y, 2, 0.1)
    assert torch.get_num_threads() == before
