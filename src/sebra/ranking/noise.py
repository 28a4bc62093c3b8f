"""Which samples are likely mislabelled, told apart from those that are hard but right.

Labels are a mixture: mostly the class that the probabilities of a head speak of that has not seen
the sample, now and then another, whatever they say. How sure the head really is (its temperature)
and how often a class is called another one are what makes the labels likeliest (EM). `noise` is the
chance that a label is wrong; flagged is what is over a half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax
from torch import Tensor

from sebra.engine.networks import RANDOM, Network, NetworkSpec, build
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task
from sebra.ranking.crossfit import by_content
from sebra.ranking.noise_heads import Reader, held_out_logits

Array = npt.NDArray[Any]

MOST_NUMBERS = 250_000_000  # samples x classes or columns, above which nothing is looked for
FEWEST_SAMPLES = 40  # below which neither noise nor controls say anything
SUSPECT = 0.5  # noise from which a sample counts as flagged: more likely wrong than right
PRIOR = 10.0  # samples of every class whose wrong labels fall on all others alike: some are small
TWINS = 0.5  # told apart by less, from chance (0) to always (1), classes explain wrong labels
MOST_FITTED = 10_000  # samples that rates and temperature are found by, and controls look at
_ROUNDS, _SETTLED = 200, 3e-4  # of EM at most, and the change of a rate that ends it


@dataclass(frozen=True)
class NoiseEstimate:
    """One entry per sample of the task. noise: the chance that its label is wrong. suggested: the
    class (code) it seems to belong to: for those not flagged, its own. logits: of heads that have
    not seen it."""

    noise: Array
    suggested: Array
    logits: Array | None = None

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
            out[i] = (
                f"looks more like “{other}” than like “{own}” to models that have not seen it; "
                f"wrong with a chance of {100 * float(self.noise[i]):.0f} %"
            )
        return out


def too_large(task: Task) -> bool:
    """Whether the table of logits would not fit; such a task gets no estimate."""
    return len(task) * task.classes > MOST_NUMBERS


def estimate_noise(task: Task) -> NoiseEstimate:
    """The noise of every sample of a task, over features or over images.

    Images and texts are first seen by a network that was not trained on the task: labels, which may
    be wrong, never shape the features. Nothing is suspect in a task that is `too_large`.
    """
    if too_large(task):
        return _nothing(task.targets.cpu().numpy())
    order = by_content(task).numpy() if task.over_features else np.arange(len(task))
    return _estimate(_reader(task), task.targets, task.classes, task.seed, order)


def _estimate(
    read: Reader, targets: Tensor, classes: int, seed: int, order: Array
) -> NoiseEstimate:
    labels = targets.cpu().numpy().astype(np.int64)
    if len(labels) < FEWEST_SAMPLES or len(np.unique(labels)) < 2:
        return _nothing(labels)
    logits = held_out_logits(read, targets, classes, seed, order)
    return replace(mislabelled(logits, labels), logits=logits)


def mislabelled(logits: Array, labels: Array) -> NoiseEstimate:
    """The noise of samples by logits (n x classes) of models that have not seen them.

    A sample of class t is called y with chance `called[t, y]`; what a model says of t are its
    logits times one temperature.
    """
    each = np.arange(len(labels))
    rows = np.random.default_rng(0).permutation(len(labels))[:MOST_FITTED]
    temperature, called = _fitted(logits[rows].astype(np.float64), labels[rows])
    belongs = _belongs(softmax(temperature * logits, axis=1), called, labels)
    noise = np.clip(1 - belongs[each, labels], 0, 1)
    belongs[each, labels] = 0
    other = belongs.argmax(1)
    # Classes that cannot be told apart explain each other's labels as well as wrong labels do.
    noise = noise * np.minimum(1.0, _told_apart(logits, labels)[labels, other] / TWINS)
    return NoiseEstimate(noise, np.where(noise >= SUSPECT, other, labels))


def _told_apart(logits: Array, labels: Array) -> Array:
    """From 0 (chance) to 1, how well each class is told from each other one (classes x classes)."""
    right = np.zeros((logits.shape[1], logits.shape[1]))
    for own in np.unique(labels):
        members = logits[labels == own]
        right[own] = (members[:, [own]] > members).mean(0)
    out: Array = np.clip(right + right.T - 1, 0, 1)
    return out


def _fitted(logits: Array, labels: Array, sure: float | None = None) -> tuple[float, Array]:
    """The temperature, and how often each class is called each other one, by EM.

    sure: the temperature where it is known.
    """
    classes = logits.shape[1]
    given = np.eye(classes)[labels]
    called = 0.9 * np.eye(classes) + 0.1 / classes  # any start with wrong labels of every kind
    temperature = sure or _temperature(logits, called, labels, 1.0, 30.0)
    for _ in range(_ROUNDS):
        temperature = sure or _temperature(logits, called, labels, temperature, 1.5)
        says = softmax(temperature * logits, axis=1)
        counts = _belongs(says, called, labels).T @ given  # likely x given
        wrong = 1 - np.trace(counts) / len(labels)
        even = np.full((classes, classes), wrong / (classes - 1))
        np.fill_diagonal(even, 1 - wrong)
        before, called = called, counts + PRIOR * even
        called /= called.sum(1, keepdims=True)
        if np.abs(called - before).max() < _SETTLED:
            break
    return temperature, called


def _temperature(logits: Array, called: Array, labels: Array, now: float, factor: float) -> float:
    """What makes the labels likeliest, at most a factor away from what it is now."""
    from scipy.optimize import minimize_scalar  # takes half a second to load

    def unlikely(power: float) -> float:
        likely = (softmax(np.exp(power) * logits, axis=1) * called[:, labels].T).sum(1)
        return -float(np.log(likely + 1e-300).mean())

    bounds = np.log([now / factor, now * factor])
    found = minimize_scalar(unlikely, bounds=bounds, method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def _belongs(says: Array, called: Array, labels: Array) -> Array:
    """The chance of every class (n x classes), given what models say and the label."""
    out: Array = says * called[:, labels].T
    out /= np.maximum(out.sum(1, keepdims=True), 1e-300)
    return out


def noise_among(
    logits: Array, labels: Array, suspects: Array, members: Array
) -> npt.NDArray[np.float64]:
    """The noise of the suspects (a mask) by logits made without them; zero for all others.

    members: a mask of those labelled right, who say how sure the logits are.
    """
    out = np.zeros(len(labels))
    if suspects.any() and members.any():
        everyone = np.eye(logits.shape[1])
        sure = _temperature(logits[members], everyone, labels[members], 1.0, 30.0)
        _, called = _fitted(logits[suspects], labels[suspects], sure)
        says = softmax(sure * logits[suspects], axis=1)
        belongs = _belongs(says, called, labels[suspects])
        out[suspects] = 1 - belongs[np.arange(len(belongs)), labels[suspects]]
    return out


def _nothing(labels: Array) -> NoiseEstimate:
    return NoiseEstimate(np.zeros(len(labels)), labels.copy())


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
