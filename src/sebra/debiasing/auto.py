"""Debiasing that decides by itself, and leaves alone what has no pattern.

Plain training and training over the discovered patterns, each with last layers of several balances;
samples that neither was fitted to choose between them (`choosing.py`). No attribute is needed and
none is looked at. Over fixed features the last layer is all there is to train, and cross-validation
lets every sample judge. A whole network is fine-tuned twice, and held-out samples refit its last
layer, close to the one it has (as in AFR: Qiu et al., "Simple and Fast Group Robustness by
Automatic Feature Reweighting", ICML 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from sebra.debiasing.choosing import even, temperature
from sebra.debiasing.erm import Erm
from sebra.debiasing.heads import (
    STRENGTHS,
    Examples,
    best_strength,
    fitted,
)
from sebra.debiasing.judges import Judges
from sebra.debiasing.last_layer import embedded, head_of, set_head, standardised_head
from sebra.debiasing.method import Help, Method, TrainConfig
from sebra.debiasing.selection import Selector
from sebra.debiasing.stages import Stages, StagesConfig
from sebra.engine.logistic import logits_of
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.settings import setting

# How far from the plain last layer to the one of groups that count alike.
BALANCES = tuple(k / 10 for k in range(1, 11))
# Of last layers that begin at the network's own the strength says how far they may leave it.
REFITS = (1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 1e-1)


@dataclass(frozen=True)
class AutoConfig(TrainConfig):
    """How plain training and debiasing are weighed against each other."""

    budget: float = setting(3.0, "more lets debiasing cost more points of ordinary accuracy")


@dataclass(frozen=True)
class Candidate:
    """A model that could be kept. logits: of the judging samples, held out."""

    what: str  # plain or debiased
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
    rank_mode = "features"
    config_class = AutoConfig
    choice: Choice | None = None

    def holds_out(self, over_features: bool) -> bool:
        return not over_features

    def fit(self, task: Task, help: Help, session: Session) -> Network:
        """Trains and chooses. Afterwards `choice` says what was decided."""
        judges, found = self._candidates(task, help, session)
        kept = judges.jury.choose([c.logits for c in found], self.config.budget)
        networks = []
        for one in (found[0], found[kept]):
            heat = temperature(one.logits, judges.y[judges.rows], judges.ordinary[judges.rows])
            network = task.network()
            network.load_state_dict(one.network.state_dict())
            set_head(network, one.head() / heat, *one.moments)
            networks.append(network)
        self.choice = _choice(networks[0], found, kept, judges)
        session.note(_sentence(self.choice, self.config.budget))
        return networks[1]

    def _candidates(
        self, task: Task, help: Help, session: Session
    ) -> tuple[Judges, list[Candidate]]:
        guide, pool = help.guide, help.pool
        if task.over_features:
            judges = Judges.all_of(task, guide, pool)
            return judges, _heads_over("plain", task.network(), judges, STRENGTHS, None)
        assert pool is not None
        judges = Judges.held_out(task, guide, pool)
        shared = {f.name: getattr(self.config, f.name) for f in fields(TrainConfig)}
        plain = _trained("plain", Erm(TrainConfig(**shared)), task, help, session)
        found = _heads_over("plain", plain, judges, REFITS, head_of(plain))
        if judges.stages is not None:
            # A pair costs about twice a sample: half of the epochs take as long as plain training.
            half = {**shared, "epochs": max(1, self.config.epochs // 2)}
            method = Stages(StagesConfig(**half, denominator="anchor"))
            other = _trained("debiased", method, task, help, session)
            found += _heads_over("debiased", other, judges, REFITS, head_of(other))
        return judges, found


def _heads_over(
    what: str,
    network: Network,
    judges: Judges,
    strengths: Sequence[float],
    own: tuple[Tensor, Tensor] | None,
) -> list[Candidate]:
    """Last layers of a network: the plain one (or the one it has), then ever more balanced ones."""
    x, *moments = embedded(network, *judges.tasks)
    y, classes, rows = judges.y, judges.classes, judges.rows
    centre = None if own is None else standardised_head(*own, *moments).to(x.device)
    data = Examples.of(x[rows], y[rows], classes, judges.seed, centre)

    def head(weights: Tensor, strength: float) -> Callable[[], Tensor]:
        return cache(partial(fitted, x, y, classes, weights, strength, centre))

    if centre is None:
        evenly = torch.ones(len(y))
        held = data.held_out(evenly[rows], strengths)
        at = best_strength(held, y[rows], judges.ordinary[rows])
        plain, logits = head(evenly, strengths[at]), held[at]
        strengths = strengths[max(0, at - 1) : at + 1]
    else:
        plain, logits = lambda: centre, logits_of(x[rows], centre)
    found = [Candidate(what, 0.0, network, logits, moments, plain)]
    if judges.stages is not None:
        weights = even(judges.groups, 1.0)
        held = data.held_out(weights[rows], strengths)
        for c, z in zip(strengths, held, strict=True):
            full = head(weights, c)
            for share in BALANCES if centre is None else (1.0,):
                between = partial(_between, plain, full, share)
                mixed = torch.lerp(logits, z, share)
                found.append(Candidate(what, share, network, mixed, moments, between))
    return found


def _between(plain: Callable[[], Tensor], full: Callable[[], Tensor], share: float) -> Tensor:
    return full() if share == 1 else torch.lerp(plain(), full(), share)


def _trained(name: str, method: Method[Any], task: Task, help: Help, session: Session) -> Network:
    """A network trained to its last epoch, from the checkpoint where it was finished before."""

    def compute() -> dict[str, Tensor]:
        blind = replace(help, selector=Selector(None, "last epoch"))
        state = method.fit(task, blind, session).state_dict()
        return {k: v.detach().cpu() for k, v in state.items()}

    network = task.network()
    network.load_state_dict(session.once(name, compute))
    return network


def _choice(plain: Network, found: list[Candidate], kept: int, judges: Judges) -> Choice:
    jury, figures = judges.jury, {}
    for name, one in (("plain", found[0]), ("kept", found[kept])):
        figures[name] = {**vars(jury.figures(jury.right(one.logits)))}
        if judges.stages is not None:
            figures[name]["patterns"] = jury.sides(one.logits, judges.stages[judges.rows])
    return Choice(
        plain=plain,
        kept="debiased" if kept else "plain",
        balance=found[kept].balance,
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
