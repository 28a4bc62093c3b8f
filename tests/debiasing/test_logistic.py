from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sebra.debiasing.logistic import logistic_regression


def problem(classes, n=150, d=6):
    generator = torch.Generator().manual_seed(classes)
    x = torch.randn(n, d, generator=generator, dtype=torch.double)
    y = (x[:, 0] + 0.5 * x[:, 1] + torch.randn(n, generator=generator)).argsort().argsort()
    return x, y * classes // n


def objective(w, b, x, y, c, l1):
    """Sample by sample, as the docstring says."""
    total = 0.0
    for row, label in zip(x.numpy(), y.tolist(), strict=True):
        logits = np.asarray(w, dtype=float) @ row + np.asarray(b, dtype=float)
        total += np.log(np.exp(logits).sum()) - logits[label]
    w = np.asarray(w, dtype=float)
    penalty = np.abs(w).sum() if l1 else 0.5 * (w**2).sum()
    return total / len(x) + penalty / (c * len(x))


@pytest.mark.parametrize("c", [0.05, 1.0])
def test_squared_penalty_agrees_with_scikit_learn(c):
    x, y = problem(3)
    other = LogisticRegression(C=c, tol=1e-10, max_iter=5000).fit(x.numpy(), y.numpy())
    w, b = logistic_regression(x, y, 3, c, l1=False)
    assert np.allclose(w, other.coef_, atol=1e-3)
    assert np.allclose(b - b.mean(), other.intercept_ - other.intercept_.mean(), atol=1e-3)


@pytest.mark.parametrize("classes", [2, 4])
def test_absolute_penalty_is_at_its_minimum_and_sparse(classes):
    x, y = problem(classes)
    w, b = logistic_regression(x, y, classes, 0.1)
    best = objective(w, b, x, y, 0.1, l1=True)
    assert (w == 0).any()
    generator = torch.Generator().manual_seed(0)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            moved = w + size * torch.randn(w.shape, generator=generator)
            shifted = b + size * torch.randn(b.shape, generator=generator)
            assert objective(moved, shifted, x, y, 0.1, l1=True) >= best - 1e-6
