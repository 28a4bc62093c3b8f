"""Which samples are likely mislabelled, told apart from those that are hard but right.

Both end at the tail of a ranking. What differs: a mislabelled sample is an *ordinary* member of
another class, while a hard one that is labelled right still carries something of its own class
and is an unusual member of the other. So a sample is compared with the members of the class it
seems to belong to: heads that have not seen it say how much it looks like that class, and
`typical` is the share of the class's members that look like it less. Mislabelled samples spread
evenly over that scale, hard ones crowd at its low end; the density at the high end therefore says
how many are mislabelled, and `noise` is the share of them at the sample's own place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.engine.networks import RANDOM, Network, NetworkSpec, build
from sebra.engine.passes import evaluating, predict
from sebra.engine.task import Task
from sebra.ranking.folds import stratified_folds

Array = npt.NDArray[Any]
Reader = Callable[[Tensor], Tensor]  # places -> features, n x d floats

FOLDS = 10
STRENGTHS = (0.3, 1.0)  # of the heads: a sample must look wrong to a stiff and to a supple one
MOST_TO_TRAIN = 40_000  # samples that a head sees; it judges all the others
MOST_LOGITS = 250_000_000  # samples x classes, above which nothing is estimated
FEWEST_MEMBERS = 10  # of a class, below which nothing can be called a typical member of it
FEWEST_SAMPLES = 40
UPPER = 0.5  # above this only mislabelled samples are expected on the scale of typicality
SUSPECT = 0.5  # noise from which a sample counts as flagged
_BINS = (4, 20)
_PER_BIN = 15
_STEPS = 80
_TOLERANCE = 1e-4
_LOGITS = 30_000_000  # numbers held at once while heads train
_BLOCK = 8192


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
    seen = _held_out_logits(read, targets, classes, seed)
    mean = np.mean([z - z.mean(1, keepdims=True) for z in seen], axis=0)
    best = _best_other(mean, labels)
    # Both heads must agree: what only one of them finds ordinary may be an accident of that head.
    typical = np.min([_typicality(z, labels, best) for z in seen], axis=0)
    doubt = _sigmoid(mean[np.arange(n), best] - mean[np.arange(n), labels])
    # The last terms order samples whose share is the same.
    noise = 0.9 * _share_mislabelled(typical) + 0.08 * typical + 0.02 * doubt
    noise = noise * min(1.0, 2 * _skill(mean, labels))
    suggested = np.where(typical > 0, best, labels)
    return NoiseEstimate(noise.astype(np.float64), suggested.astype(np.int64), typical)


def _skill(logits: Array, labels: Array) -> float:
    """Held-out accuracy, classes alike, from 0 (chance) to 1: who knows little accuses nobody."""
    right = logits.argmax(1) == labels
    present = np.unique(labels)
    accuracy = float(np.mean([right[labels == c].mean() for c in present]))
    chance = 1 / len(present)
    return max(0.0, (accuracy - chance) / max(1 - chance, 1e-12))


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


def _held_out_logits(read: Reader, y: Tensor, classes: int, seed: int) -> list[Array]:
    """Per strength, the logits of every sample from a head that was trained without it."""
    shuffle = np.random.default_rng(seed).permutation(len(y))
    fold = torch.from_numpy(stratified_folds(y.cpu().numpy(), FOLDS, shuffle)).to(y.device)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    # In the order they are stored in: a memory map is read forwards.
    rows, rest = order[:MOST_TO_TRAIN].sort().values, order[MOST_TO_TRAIN:].sort().values
    x = torch.cat([read(part) for part in _parts(rows, _BLOCK)])
    std, mean = torch.std_mean(x, dim=0, correction=0)
    # Divided by the root of the dimension, so that one strength suits every d.
    scale = 1 / (std.clamp_min(1e-6) * x.shape[1] ** 0.5)
    x = (x - mean) * scale
    heads = [_trained(x, y[rows], fold[rows], classes, c) for c in STRENGTHS]
    out = [np.empty((len(y), classes), dtype=np.float32) for _ in heads]

    def judge(part: Tensor, features: Tensor) -> None:
        where = part.cpu().numpy()
        for weights, logits in zip(heads, out, strict=True):
            every = torch.einsum("nd,dkc->nkc", features, weights[:-1]) + weights[-1]
            own = every[torch.arange(len(part), device=part.device), fold[part]]
            logits[where] = own.cpu().numpy()

    block = max(1, min(_BLOCK, _LOGITS // (FOLDS * classes)))
    for at in _parts(torch.arange(len(rows), device=y.device), block):
        judge(rows[at], x[at])
    for part in _parts(rest, block):
        judge(part, (read(part) - mean) * scale)
    return out


def _trained(x: Tensor, y: Tensor, fold: Tensor, classes: int, c: float) -> Tensor:
    """A head per fold, trained on the others: d + 1 x folds x classes."""
    # Heads of several folds share every pass over the features, as far as memory allows.
    together = max(1, min(FOLDS, _LOGITS // (len(x) * classes)))
    parts = []
    for numbers in _parts(torch.arange(FOLDS, device=x.device), together):
        parts.append(_heads(x, y, fold[:, None] != numbers[None, :], classes, c))
    return torch.cat(parts, dim=1)


def _parts(x: Tensor, size: int) -> list[Tensor]:
    return [x[start : start + size] for start in range(0, len(x), size)]


def _heads(x: Tensor, y: Tensor, use: Tensor, classes: int, c: float) -> Tensor:
    """Multinomial logistic regressions, one per column of `use`, each on the rows it marks.

    Each minimises `mean CE + |w|² / (2 c n)`. Returns d + 1 x heads x classes; the last row holds
    the intercepts.
    """
    n, heads = use.shape
    weights = torch.zeros(x.shape[1] + 1, heads, classes, device=x.device, requires_grad=True)
    share = use.float() / use.sum(0)
    strength = 1 / (2 * c * use.sum(0).float())
    labels = y[:, None].expand(n, heads).reshape(-1)
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=_STEPS,
        tolerance_grad=_TOLERANCE,
        tolerance_change=1e-9,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = (x @ weights[:-1].flatten(1)).view(n, heads, classes) + weights[-1]
        each = F.cross_entropy(logits.flatten(0, 1), labels, reduction="none").view(n, heads)
        penalty = (weights[:-1].square().sum((0, 2)) * strength).sum()
        value = (each * share).sum() + penalty
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


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
    pair = np.where(margin > 0, labels * classes + best, -1)
    for code in np.unique(pair[pair >= 0]).tolist():
        own, other = divmod(code, classes)
        members = logits[labels == other]
        reference = np.sort(members[:, other] - members[:, own])
        reference = reference[reference > 0]
        if len(reference) >= FEWEST_MEMBERS:
            rows = pair == code
            out[rows] = np.searchsorted(reference, margin[rows], side="right") / len(reference)
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
