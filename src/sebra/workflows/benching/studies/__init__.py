"""Studies by name: each leaves a table and the figure drawn from it.

To add one: a function `name(bench: Workbench) -> Study` in a file of its own, and its entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from sebra.errors import UsageError

STUDIES: dict[str, tuple[str, str]] = {
    "ablation": (
        "sebra.workflows.benching.studies.ablation",
        "the ranking without u, without u and v, and by chance",
    ),
    "beta": ("sebra.workflows.benching.studies.beta", "ranking quality over beta"),
    "cost": ("sebra.workflows.benching.studies.cost", "seconds of ranking, debiasing and ERM"),
    "discovery": (
        "sebra.workflows.benching.studies.discovery",
        "what the ends of the ranking look like: colour, light and detail by rank",
    ),
    "noise": (
        "sebra.workflows.benching.studies.noise",
        "how well wrong labels are found, and what removing them gives back",
    ),
}


def study_function(name: str) -> Callable[[Any], Any]:
    """The study registered under `name`."""
    if name not in STUDIES:
        raise UsageError(f"study: no study {name!r}; choose from {', '.join(STUDIES)}")
    function: Callable[[Any], Any] = getattr(import_module(STUDIES[name][0]), name)
    return function
