"""Sampling weights that make shortcuts found so far useless for telling the classes apart.

A sample's *pattern* says which of the shortcuts it follows. Nothing is ever deleted: taking the
samples that follow a shortcut away would leave it reversed, and the reverse would be learned next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def neutral_weights(follows: Flags, labels: Ints, trust: Floats) -> Floats:
    """Weights under which no shortcut says anything about the class.

    follows: n x k, which shortcut each sample follows. Within a class, a pattern and its opposite
    get the same mass, the harmonic mean of their sizes: of all such weights these keep the most
    samples in play. A pattern without an opposite gets nothing, unless no pattern of its class has
    one: there the shortcuts are those of other classes. Classes weigh the same. trust: 0 to 1, how
    far each sample's label counts.
    """
    stages = follows.shape[1]
    if stages == 0:
        return per_class(trust, labels)
    code = (follows * (1 << np.arange(stages))).sum(1)
    weights = np.zeros(len(labels))
    for c in np.unique(labels):
        here = labels == c
        mass = np.bincount(code[here], trust[here], minlength=1 << stages)
        opposite = mass[::-1]
        shared = np.where((mass > 0) & (opposite > 0), mass * opposite, 0.0)
        shared = shared / np.maximum(mass + opposite, 1e-12)
        if not shared.any():
            shared = mass
        weights[here] = trust[here] * (shared / np.maximum(mass, 1e-12))[code[here]]
    return per_class(weights, labels)


def looks_weights(looks: Ints, labels: Ints) -> Floats:
    """Weights for telling the class by anything but what the samples look like.

    looks: the class whose shortcut each sample shows. Those that look like a class and are of it
    get the same mass as those that only look like it, the harmonic mean of their sizes.
    """
    weights = np.zeros(len(labels))
    for c in np.unique(looks[looks != labels]):
        members, guests = (looks == c) & (labels == c), (looks == c) & (labels != c)
        a, b = members.sum(), guests.sum()
        if a:
            weights[members], weights[guests] = b / (a + b), a / (a + b)
    return weights


def contrast_weights(before: Flags, splits: Flags, labels: Ints, trust: Floats) -> Floats:
    """Weights for learning what sets the two sides of a split apart, and nothing else.

    Within a class and a pattern of the earlier shortcuts (`before`, n x k) both sides of the new
    split get the same mass, the harmonic mean of their sizes: neither the class nor an earlier
    shortcut says anything about the side.
    """
    stages = before.shape[1]
    cell = labels * (1 << stages) + (before * (1 << np.arange(stages))).sum(1).astype(np.int64)
    _, cell = np.unique(cell, return_inverse=True)
    yes = np.bincount(cell, trust * splits)
    no = np.bincount(cell, trust * ~splits)
    shared = np.where((yes > 0) & (no > 0), yes * no / np.maximum(yes + no, 1e-12), 0.0)
    side = np.where(splits, yes[cell], no[cell])
    return per_class(trust * shared[cell] / np.maximum(side, 1e-12), labels)


def per_class(weights: Floats, labels: Ints) -> Floats:
    """The same weights with a total of one in every class (zero where a class has none)."""
    total = np.bincount(labels, weights)
    out: Floats = weights / np.maximum(total, 1e-12)[labels]
    return out


def best_other(logits: Floats, labels: Ints) -> Ints:
    """The likeliest class besides the label."""
    others = logits.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    best: Ints = others.argmax(1)
    return best
