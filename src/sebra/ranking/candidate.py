"""The strongest pattern that the ones found so far leave, and the evidence for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sebra.ranking.balance import (
    Flags,
    Floats,
    Ints,
    best_other,
    contrast_weights,
    looks_weights,
    neutral_weights,
    per_class,
)
from sebra.ranking.crossfit import Judge
from sebra.ranking.evidence import Evidence, evidence_of

ROUNDS = 2  # suspects are first the samples told wrong, then those that look like the others


def find_candidate(
    judge: Judge, before: Flags, labels: Ints, trust: Floats, heard: Flags
) -> dict[str, Tensor]:
    """What most samples of a class share and the model goes by, as tensors that can be kept.

    before: n x k, which of the earlier patterns each sample follows. heard: those that follow all,
    by which the evidence goes. `easy` is the margin of the class by the easiest cue, `margin` above
    zero for samples that follow the candidate; without suspects it is that of the class.
    """
    y, neutral = torch.from_numpy(labels), torch.from_numpy(neutral_weights(before, labels, trust))
    first = judge.tell_class(y, neutral)
    first_head, first_scale = judge.head, _scale(first, labels)
    by_class = first.double().numpy() / first_scale
    easy = margins(by_class, labels)
    margin, seems, head = easy, np.where(easy > 0, labels, by_class.argmax(1)), first_head
    thresholds, evidence = np.zeros(first.shape[1]), Evidence.none(first.shape[1])
    for number in range(ROUNDS):
        suspects = seems != labels
        apart = contrast_weights(before, ~suspects, labels, trust)
        if apart.sum() == 0:
            break
        told = judge.tell_apart(torch.from_numpy(seems), torch.from_numpy(apart))
        scale = _scale(told, labels)
        both = by_class + told.double().numpy() / scale
        thresholds = _between(both, labels)
        margin = margins(both, labels) - thresholds[labels]
        seems = np.where(margin > 0, labels, best_other(both, labels))
        if first_head is not None and judge.head is not None:
            head = first_head / first_scale + judge.head / scale
        if number + 1 == ROUNDS:  # one taught who the suspects are makes any class lean
            plain = judge.tell_apart(y, neutral).double().numpy()
            last = _evidence(judge, told.double().numpy(), labels, suspects, heard)
            evidence = _evidence(judge, plain, labels, suspects, heard)
            evidence = replace(evidence, clouds=last.clouds, rights=last.rights)
    return kept(evidence, head, easy=easy, margin=margin, thresholds=thresholds)


def kept(evidence: Evidence, head: Tensor | None, **values: Floats) -> dict[str, Tensor]:
    """A candidate as tensors."""
    out = {name: torch.from_numpy(value) for name, value in (vars(evidence) | values).items()}
    return out if head is None else {**out, "head": head}


def told_plainly(judge: Judge, labels: Ints) -> Flags:
    """Where a plain model, trained without the sample, tells its class: the better of two."""
    y, weights = torch.from_numpy(labels), torch.from_numpy(per_class(np.ones(len(labels)), labels))
    right = [tell(y, weights).argmax(1) == y for tell in (judge.tell_class, judge.tell_apart)]
    best: Flags = max(right, key=lambda flags: float(flags.double().mean())).numpy()
    return best


def _evidence(judge: Judge, told: Floats, labels: Ints, suspects: Flags, heard: Flags) -> Evidence:
    looks = np.where(margins(told, labels) > 0, labels, best_other(told, labels))
    weights = looks_weights(looks, labels)
    if weights.sum() == 0:
        return Evidence.none(told.shape[1])
    rest = judge.tell_apart(torch.from_numpy(labels), torch.from_numpy(weights)).double().numpy()
    return evidence_of(told, rest, labels, suspects, heard)


def _between(logits: Floats, labels: Ints) -> Floats:
    """Per class the margin half way between its samples and those of the others."""
    rows = np.arange(len(labels))
    top = logits.argmax(1)
    best = logits[rows, top]
    runner_up = logits[rows, best_other(logits, top)]
    out = np.zeros(logits.shape[1])
    for c in np.unique(labels):
        margin = logits[:, c] - np.where(top == c, runner_up, best)
        out[c] = (np.median(margin[labels == c]) + np.median(margin[labels != c])) / 2
    return out


def margins(logits: Floats, labels: Ints) -> Floats:
    """The logit of the label less the largest of the others: above 0 where the label is told."""
    rows = np.arange(len(labels))
    out: Floats = logits[rows, labels] - logits[rows, best_other(logits, labels)]
    return out


def _scale(logits: Tensor, labels: Ints) -> float:
    return max(float(margins(logits.double().numpy(), labels).std()), 1e-12)
