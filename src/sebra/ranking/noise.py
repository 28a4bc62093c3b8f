"""Which samples are likely mislabelled, told apart from those that are hard but right.

Both end at the tail of a ranking. What differs: a mislabelled sample is an *ordinary* member of
another class, while a hard one that is labelled right still carries something of its own class
and is an unusual member of the other. So a sample is compared with the members of the class it
seems to belong to: heads that have not seen it say how much it looks like that class, and
`typical` is the share of the class's members that look like it less. Mislabelled samples spread
evenly over that scale, hard ones crowd at its low end; the density at the high end therefore says
how many are mislabelled, and `noise` is the share of them at the sample's own place. Heads that can
hardly tell two classes apart accuse no sample of the one of being the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sebra.engine.networks import RANDOM, Network, NetworkSpec, build
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task
from sebra.ranking.noise_heads import Reader, held_out_logits

Array = npt.NDArray[Any]

MOST_LOGITS = 250_000_000  # samples x classes, above which nothing is estimated
FEWEST_MEMBERS = 10  # of a class, below which nothing can be called a typical member of it
FEWEST_SAMPLES = 40
UPPER = 0.5  # above this only mislabelled samples are expected on the scale of typicality
SUSPECT = 0.5  # noise from which a sample counts as flagged
_BINS = (4, 20)
_PER_BIN = 15


@dataclass(frozen=True)
class NoiseEstimate:
    """One entry per sample of the task.

    noise: 0 to 1, the chance that the label is wrong. suggested: the class (code) it looks like,
    its own where nothing better is seen. typical: 0 to 1, the share of the suggested class's
    members that look less like that class than this sample does.
    """

    noise: Array
    suggested: Array
    typical: Array

    @property
    def flagged(self) -> npt.NDArray[np.bool_]:
        """The samples that are more likely wrong than right."""
        out: npt.NDArray[np.bool_] = self.noise >= SUSPECT
        return out

    def reasons(self, labels: Array, classes: Sequence[str]) -> list[str]:
        """Why each flagged sample is suspect, in words; "" for the others."""
        out = [""] * len(self.noise)
        for i in np.flatnonzero(self.flagged).tolist():
            other, own = classes[int(self.suggested[i])], classes[int(labels[i])]
            share = 100 * float(self.typical[i])
            out[i] = (
                f"looks more like “{other}” than {share:.0f} % of the samples of “{other}” do, "
                f"and not like “{own}”"
            )
        return out


def too_large(task: Task) -> bool:
    """Whether the table of logits would not fit; such a task gets no estimate."""
    return len(task) * task.classes > MOST_LOGITS


def estimate_noise(task: Task) -> NoiseEstimate:
    """The noise of every sample of a task, over features or over images.

    Images and texts are first turned into features by a network that was not trained on the task
    (`untrained_network`): labels, which may be wrong, never shape the features. Nothing is suspect
    in a task that is `too_large`.
    """
    if too_large(task):
        return _nothing(task.targets.cpu().numpy())
    return _estimate(_reader(task), task.targets, task.classes, task.seed)


def noise_of(x: Tensor, targets: Tensor, classes: int, seed: int = 0) -> NoiseEstimate:
    """The noise of every row of a feature table (n x d)."""
    return _estimate(lambda rows: x[rows], targets, classes, seed)


def noise_among(
    logits: Array, labels: Array, suspects: Array, members: Array
) -> npt.NDArray[np.float64]:
    """The noise of the suspects alone, by logits that were made without them; zero elsewhere.

    suspects, members: masks. A suspect is compared with those members of the class it looks like.
    """
    n = len(labels)
    best = _best_other(logits, labels)
    typical = np.zeros(n)
    for own, other in {*zip(labels[suspects].tolist(), best[suspects].tolist(), strict=True)}:
        reference = logits[members & (labels == other)]
        if len(reference) >= FEWEST_MEMBERS:
            rows = suspects & (labels == own) & (best == other)
            scale = np.sort(reference[:, other] - reference[:, own])
            place = np.searchsorted(scale, logits[rows, other] - logits[rows, own], side="right")
            typical[rows] = (place + 0.5) / (len(scale) + 1)
    return _share_mislabelled(typical)


def _estimate(read: Reader, targets: Tensor, classes: int, seed: int) -> NoiseEstimate:
    labels = targets.cpu().numpy().astype(np.int64)
    n = len(labels)
    if n < FEWEST_SAMPLES or len(np.unique(labels)) < 2:
        return _nothing(labels)
    seen = held_out_logits(read, targets, classes, seed)
    mean = np.mean([z - z.mean(1, keepdims=True) for z in seen], axis=0)
    best = _best_other(mean, labels)
    # Both heads must agree: what only one of them finds ordinary may be an accident of that head.
    typical = np.min([_typicality(z, labels, best) for z in seen], axis=0)
    doubt = _sigmoid(mean[np.arange(n), best] - mean[np.arange(n), labels])
    # The last terms order samples whose share is the same.
    noise = 0.9 * _share_mislabelled(typical) + 0.08 * typical + 0.02 * doubt
    noise = noise * np.minimum(1.0, 2 * _skill(mean, labels, best))
    suggested = np.where(typical > 0, best, labels)
    return NoiseEstimate(noise.astype(np.float64), suggested.astype(np.int64), typical)


def _skill(logits: Array, labels: Array, best: Array) -> Array:
    """From 0 (chance) to 1, how well a sample's class is told from the one it looks like.

    The accuracy over all classes counts where it is the lower one.
    """
    classes = logits.shape[1]
    members = _by_code(labels)
    right = logits.argmax(1) == labels
    accuracy = float(np.mean([right[rows].mean() for rows in members.values()]))
    chance = 1 / len(members)
    overall = (accuracy - chance) / (1 - chance)
    out = np.zeros(len(labels))
    for code, rows in _by_code(labels * classes + best).items():
        own, other = divmod(code, classes)
        if other in members:
            here, there = logits[members[own]], logits[members[other]]
            told = np.mean(here[:, own] > here[:, other]) + np.mean(there[:, other] > there[:, own])
            out[rows] = max(0.0, min(overall, float(told) - 1))
    return out


def _by_code(codes: Array) -> dict[int, Array]:
    """The rows of every code that occurs."""
    order = np.argsort(codes, kind="stable")
    found, first = np.unique(codes[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True))


def _nothing(labels: Array) -> NoiseEstimate:
    return NoiseEstimate(np.zeros(len(labels)), labels.copy(), np.zeros(len(labels)))


def _reader(task: Task) -> Reader:
    """Features of the samples at given places."""
    if not (task.inputs.is_image or task.inputs.is_text):
        return lambda rows: task.batch(rows).float()
    network = untrained_network(task)

    def read(rows: Tensor) -> Tensor:
        with evaluating(network):
            return predict(network.embed, task, rows, batch=256)

    return read


def untrained_network(task: Task) -> Network:
    """The task's network before training; fixed random convolutions where it has no weights."""
    network = task.network()
    if task.inputs.is_image and network.spec.weights == "none":
        height, width, _ = task.inputs.shape
        network = build(NetworkSpec(RANDOM, (3, height, width), 1), 0).to(task.device)
    return network


def _best_other(logits: Array, labels: Array) -> Array:
    others = logits.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    best: Array = others.argmax(1)
    return best


def _typicality(logits: Array, labels: Array, best: Array) -> Array:
    """Share of the best other class's members with a smaller margin over the sample's label.

    Members that the head itself does not take for members are left out of the comparison, since
    mislabelled ones are among them.
    """
    n, classes = logits.shape
    margin = logits[np.arange(n), best] - logits[np.arange(n), labels]
    out = np.zeros(n)
    members = _by_code(labels)
    for code, rows in _by_code(np.where(margin > 0, labels * classes + best, -1)).items():
        own, other = divmod(code, classes)
        if code < 0 or other not in members:
            continue
        reference = logits[members[other]]
        scale = np.sort(reference[:, other] - reference[:, own])
        scale = scale[scale > 0]
        if len(scale) >= FEWEST_MEMBERS:
            out[rows] = np.searchsorted(scale, margin[rows], side="right") / len(scale)
    return out


def _share_mislabelled(typical: Array) -> Array:
    """Of the samples at each place of the scale, the share that is mislabelled.

    Mislabelled samples lie evenly on it and hard ones ever thinner towards its upper end, so the
    level of the upper end is theirs alone (as in Storey's estimate of true null hypotheses).
    """
    from scipy.optimize import isotonic_regression  # scikit-learn's takes seconds to load

    out = np.zeros(len(typical))
    suspects = typical > 0
    at = typical[suspects]
    if not len(at):
        return out
    level = np.count_nonzero(at > UPPER) / (1 - UPPER)
    bins = int(np.clip(len(at) // _PER_BIN, *_BINS))
    counts, edges = np.histogram(at, bins=bins, range=(0.0, 1.0))
    falling = isotonic_regression(counts * bins, increasing=False).x
    density = np.interp(at, (edges[:-1] + edges[1:]) / 2, falling)
    out[suspects] = np.minimum(1.0, level / np.maximum(density, 1e-9))
    return out


def _sigmoid(x: Array) -> Array:
    from scipy.special import expit

    out: Array = expit(x)
    return out
