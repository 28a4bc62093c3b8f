"""Debiasing that decides by itself, and leaves alone what has no pattern.

Plain training, and last layers that count the discovered groups more and more alike; samples that
no candidate was fitted to choose between them (`choosing.py`). No attribute is needed and none is
looked at. Over fixed features the last layer is all there is to train, and cross-validation lets
every sample judge. A whole network is fine-tuned twice: freely, and so that it stays close to what
it was. The second is taken, which new kinds of samples surprise less, unless held-out samples are
clearly told better by the first. Its last layer is refitted to them, close to the one it has (as in
AFR: Qiu et al., "Simple and Fast Group Robustness by Automatic Feature Reweighting", ICML 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from sebra.debiasing.choosing import calibrated, temperature
from sebra.debiasing.erm import Erm
from sebra.debiasing.heads import Examples, even_heads, fitted, plain_head
from sebra.debiasing.judges import Judges
from sebra.debiasing.last_layer import (
    embedded,
    head_of,
    set_head,
    set_probe,
    standardised_head,
)
from sebra.debiasing.method import Help, Method, TrainConfig
from sebra.debiasing.selection import Selector
from sebra.engine.logistic import logits_of
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.settings import setting

# How far from the plain last layer to the one of groups that count alike, and at most half as far
# beyond: the few samples of rare groups are learned by heart, so of new ones it tells fewer.
BALANCES = tuple(k / 20 for k in range(1, 31))
# Of last layers that begin at the network's own the strength says how far they may leave it.
REFITS = (1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 1e-1)


@dataclass(frozen=True)
class AutoConfig(TrainConfig):
    """How plain training and debiasing are weighed against each other."""

    budget: float = setting(3.0, "more lets debiasing cost more points of ordinary accuracy")


@dataclass(frozen=True)
class Candidate:
    """A model that could be kept. logits: of the judging samples, held out."""

    balance: float
    network: Network
    logits: Tensor
    moments: list[Tensor]  # mean and deviation of the embeddings that the head is for
    head: Callable[[], Tensor]  # fitted to all judging samples


@dataclass(frozen=True)
class Choice:
    """What was kept and why: the plain model beside it, figures of both, by pattern."""

    plain: Network
    kept: str  # plain or debiased
    balance: float
    patterns: int
    figures: dict[str, Any]  # of plain and of the kept one, on held-out samples

    @property
    def selection(self) -> dict[str, Any]:
        """How the model was chosen, and its score there."""
        kept = self.figures["kept"]
        criterion = "discovered groups" if self.patterns else "class"
        return {"criterion": criterion, "score": kept["worst"] + kept["balanced"]}

    def to_dict(self) -> dict[str, Any]:
        shown = ("kept", "balance", "patterns", "figures")
        return {name: getattr(self, name) for name in shown}


class Auto(Method[AutoConfig]):
    """Plain, or debiased over the patterns as far as the budget allows: whatever serves."""

    name = "auto"
    needs = frozenset({"ranking"})
    ranker = "peel"
    sees_patches = True
    counts_costs = True
    config_class = AutoConfig
    choice: Choice | None = None

    def holds_out(self, over_features: bool) -> bool:
        return not over_features

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        """Trains and chooses. Afterwards `choice` says what was decided."""
        judges, plain, ways = self._candidates(task, help, session)
        logits = [[one.logits for one in way] for way in ways]
        place = judges.jury.choose(plain.logits, logits, self.config.budget)
        kept = plain if place is None else ways[place[0]][place[1]]
        networks = []
        for one in (plain, kept):
            heat = temperature(one.logits, judges.y[judges.rows], judges.ordinary[judges.rows])
            network = task.network()
            network.load_state_dict(one.network.state_dict())
            set_head(network, one.head() / heat, *one.moments)
            networks.append(network)
        self.choice = _choice(networks[0], plain, kept, judges)
        session.note(_sentence(self.choice, self.config.budget))
        return networks[1]

    def _candidates(
        self, task: Task, help: Help, session: Session
    ) -> tuple[Judges, Candidate, list[list[Candidate]]]:
        """Plain training, and ways to debias along which it grows stronger."""
        guide, pool = help.guide, help.pool
        if task.over_features:
            judges = Judges.all_of(task, guide, pool)
            return judges, *_heads_over_features(task, judges)
        assert pool is not None
        judges = Judges.held_out(task, pool, help.drawn)
        shared = {f.name: getattr(self.config, f.name) for f in fields(TrainConfig)}
        free = _trained("free", Erm(TrainConfig(**shared)), task, help, session)
        near = _near(TrainConfig(**shared), task, help, session)
        return judges, *_refitted(free if judges.much_better(free, near) else near, judges)


def _heads_over_features(task: Task, judges: Judges) -> tuple[Candidate, list[list[Candidate]]]:
    """The plain last layer, of training samples alone, and ways to balanced ones, of all.

    There is one for every strength and both choices of columns of the balanced layer, as the best
    at the end of its way need not be the best within a budget. Both ends are calibrated: half of a
    way means little where logits differ in size. A way goes on beyond its end as long as held-out
    samples are told better for it where groups count alike.
    """
    network, n = task.network(), len(task)
    x, *moments = embedded(network, *judges.tasks)
    y, rows, ordinary = judges.y, judges.rows, judges.ordinary[judges.rows]
    ours, given = rows < n, (x[:n], y[:n], torch.ones(n))  # the samples of val come after these
    found = plain_head(x[rows[ours]], y[rows[ours]], task, torch.ones(int(ours.sum())))
    logits = logits_of(x[rows], found.of_all(*given))
    logits[ours] = found.logits
    start = Candidate(0.0, network, logits, moments, partial(found.of_all, *given))
    ways: list[list[Candidate]] = []
    if judges.stages is None:
        return start, ways
    found = replace(found, logits=logits).calibrated(y[rows], ordinary)
    plain = cache(partial(found.of_all, *given))
    weights = judges.alike
    for end in even_heads(x[rows], y[rows], task, weights[rows]):
        balanced = end.calibrated(y[rows], ordinary)
        full = cache(partial(balanced.of_all, x, y, weights))

        def at(share: float, full: Callable[[], Tensor] = full) -> Tensor:
            return torch.lerp(plain(), full(), share)

        way, least = [], float("inf")
        for share in BALANCES:
            z = torch.lerp(found.logits, balanced.logits, share)
            if share >= 1:
                before, least = least, calibrated(z, y[rows], weights[rows])
                if least >= before:
                    break
            way.append(Candidate(share, network, z, moments, partial(at, share)))
        ways.append(way)
    return start, ways


def _refitted(network: Network, judges: Judges) -> tuple[Candidate, list[list[Candidate]]]:
    """The last layer that a network has, and a way to balanced ones ever farther from it.

    The last is the one that tells held-out samples best where groups count alike.
    """
    x, *moments = embedded(network, *judges.tasks)
    y, classes, rows = judges.y, judges.classes, judges.rows
    own = standardised_head(*head_of(network), *moments).to(x.device)
    start = Candidate(0.0, network, logits_of(x[rows], own), moments, lambda: own)
    way: list[Candidate] = []
    if judges.stages is None:
        return start, []
    weights = judges.alike
    data = Examples.of(x[rows], y[rows], classes, judges.seed, own)
    logits = list(data.held_out(weights[rows], REFITS))
    ends = min(range(len(REFITS)), key=lambda k: calibrated(logits[k], y[rows], weights[rows]))
    for c, z in zip(REFITS[: ends + 1], logits[: ends + 1], strict=True):
        head = partial(fitted, x, y, classes, weights, c, own)
        way.append(Candidate(1.0, network, z, moments, head))
    return start, [way]


def _trained(name: str, method: Method[Any], task: Task, help: Help, session: Session) -> Network:
    """A network trained to its last epoch, from the checkpoint where it was finished before."""

    def compute() -> dict[str, Tensor]:
        blind = replace(help, selector=Selector(None, "last epoch"))
        state = method.fit(task, blind, session).state_dict()
        return {k: v.detach().cpu() for k, v in state.items()}

    network = task.network()
    network.load_state_dict(session.once(name, compute))
    return network


def _near(config: TrainConfig, task: Task, help: Help, session: Session) -> Network:
    """Fine-tuned from a probe, and then half of the way back to it.

    Such a network is often better where new samples differ from the training set (Wortsman et al.,
    "Robust fine-tuning of zero-shot models", CVPR 2022).
    """
    start = task.network()
    set_probe(start, task)
    half = replace(config, start="probe", epochs=max(1, config.epochs // 2))
    network = _trained("near", Erm(half), task, help, session)
    there = network.state_dict()
    for name, value in start.state_dict().items():
        if value.is_floating_point():
            there[name].lerp_(value, 0.5)
    return network


def _choice(network: Network, plain: Candidate, kept: Candidate, judges: Judges) -> Choice:
    jury, figures = judges.jury, {}
    for name, one in (("plain", plain), ("kept", kept)):
        figures[name] = {**vars(jury.figures(jury.right(one.logits)))}
        if judges.stages is not None:
            figures[name]["patterns"] = jury.sides(one.logits, judges.stages[judges.rows])
    return Choice(
        plain=network,
        kept="plain" if kept is plain else "debiased",
        balance=kept.balance,
        patterns=0 if judges.stages is None else judges.stages.shape[1],
        figures=figures,
    )


def _sentence(choice: Choice, budget: float) -> str:
    """What was decided, for the user."""
    if choice.patterns == 0:
        return "no pattern was found that most samples of a class share: plain training is kept"
    plain, kept = choice.figures["plain"], choice.figures["kept"]
    if choice.kept == "plain":
        return (
            f"{choice.patterns} pattern(s) found, but within a budget of {budget:g} points no "
            "debiasing gains more than it costs: plain training is kept"
        )
    return (
        f"{choice.patterns} pattern(s) found; on held-out samples the mean over groups goes from "
        f"{plain['balanced']:.1f} to {kept['balanced']:.1f} %, ordinary accuracy from "
        f"{plain['accuracy']:.1f} to {kept['accuracy']:.1f} % (budget {budget:g} points)"
    )
