"""`--tune`: the ranker's settings chosen by controls, without any attribute and bounded by time.

A search along one setting after the other: the settings as they are come first, then, per setting,
its alternatives beside the best so far; whatever is trusted more is kept. The space is small and
declared here, most promising first, so that a search that is cut short has tried what matters.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.ranking.controls import run_controls
from sebra.ranking.noise import FEWEST_SAMPLES
from sebra.ranking.ranking import Ranker

SECONDS = 120.0
LEAST_GAIN = 0.005  # of trust, below which the settings as they are stay
TRIALS = 3  # of each control per setting, the same ones for all


@dataclass(frozen=True)
class Axis:
    """One setting and what is tried for it: values, or factors of the value it has."""

    name: str
    values: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def beside(self, now: Any) -> list[Any]:
        """The alternatives to the value it has now."""
        found = [type(now)(v) for v in (*self.values, *(now * f for f in self.factors))]
        return [value for value in found if value != now]


_LEARNING = (
    Axis("lr", factors=(0.2, 5.0)),
    Axis("p_critical", values=(0.95, 0.6)),
    Axis("beta", values=(2.0, 0.6)),
)
SPACES: dict[str, tuple[Axis, ...]] = {
    "sebra": _LEARNING,
    "erm": _LEARNING[:2],
    "peel": (Axis("penalty", factors=(3.0, 0.3)), Axis("penalty_contrast", factors=(3.0, 0.3))),
}


def space_of(method: str, fixed: tuple[str, ...] = (), config: Any = None) -> tuple[Axis, ...]:
    """What `--tune` varies; settings that the user gave (`--set`) stay as they are."""
    if method not in SPACES:
        raise UsageError(
            f"--tune: {method} has no settings to search; choose from {', '.join(SPACES)}"
        )
    given = {text.partition("=")[0] for text in fixed}
    if "lam" in given or getattr(config, "lam", None) is not None:
        given |= {"p_critical", "beta"}  # lam is a threshold of its own, tied to beta
    return tuple(axis for axis in SPACES[method] if axis.name not in given)


def tune(
    task: Task,
    kind: Any,
    config: Any,
    space: tuple[Axis, ...],
    session: Session,
    seconds: float = SECONDS,
) -> tuple[Any, list[dict[str, Any]]]:
    """The configuration that is trusted most, and every trial with its trust and seconds.

    kind: the ranker class. A search that was finished before an interruption is not repeated.
    """

    def compute() -> dict[str, torch.Tensor]:
        found = _Search(task, kind, seconds, session).run(config, space)
        return {"trials": torch.tensor(list(json.dumps(found).encode()), dtype=torch.uint8)}

    kept = session.once("tune", compute)["trials"]
    trials: list[dict[str, Any]] = json.loads(bytes(kept.tolist()).decode())
    best = next(t for t in trials if t["chosen"])
    session.note(
        f"tuned in {sum(t['seconds'] for t in trials):.0f} s over {len(trials)} trials: "
        f"{_shown(best['settings'])} (trust {best['trust']:.2f}, "
        f"with the settings as given {trials[0]['trust']:.2f})"
    )
    return dataclasses.replace(config, **best["settings"]), trials


class _Search:
    def __init__(
        self, task: Task, kind: type[Ranker[Any]], seconds: float, session: Session
    ) -> None:
        self.task, self.kind, self.session = task, kind, session
        self.ends = time.monotonic() + seconds
        if task.inputs.is_image or task.inputs.is_text:
            raise UsageError("--tune: its controls need frozen features; add --mode features")
        if len(task) < FEWEST_SAMPLES or int(task.targets.min()) == int(task.targets.max()):
            raise UsageError("--tune: too few samples or classes to tell good rankings from bad")
        self.trials: list[dict[str, Any]] = []

    def run(self, config: Any, space: tuple[Axis, ...]) -> list[dict[str, Any]]:
        best = self._try(config, {axis.name: getattr(config, axis.name) for axis in space})
        for axis in space:
            for value in axis.beside(getattr(config, axis.name)):
                if not self._time_left():
                    break
                trial = self._try(config, {**best["settings"], axis.name: value})
                if trial["trust"] > best["trust"] + LEAST_GAIN:
                    best = trial
        best["chosen"] = True
        return self.trials

    def _time_left(self) -> bool:
        """Whether another trial, as long as the longest so far, would end in time."""
        longest: float = max(t["seconds"] for t in self.trials)
        return time.monotonic() + longest <= self.ends

    def _try(self, config: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        started = time.monotonic()
        chosen = dataclasses.replace(config, **settings)
        controls = run_controls(
            self.task, lambda: self.kind(chosen), math.inf, self.kind.names_patterns, TRIALS
        )
        value = 0.0 if controls is None else controls.trust
        trial = {
            "settings": dict(settings),
            "trust": value,
            "seconds": time.monotonic() - started,
            "chosen": False,
        }
        self.trials.append(trial)
        self.session.progress.message(f"tune: {_shown(settings)}: trust {value:.3f}")
        return trial


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v:g}" for k, v in settings.items()) or "nothing left to vary"
