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
        "sebra_bench.studies.ablation",
        "the ranking without u, without u and v, and by chance",
    ),
    "beta": ("sebra_bench.studies.beta", "ranking quality over beta"),
    "cost": ("sebra_bench.studies.cost", "seconds of ranking, debiasing and ERM"),
    "discovery": (
        "sebra_bench.studies.discovery",
        "what the ends of the ranking look like: colour, light and detail by rank",
    ),
    "dynamics": (
        "sebra_bench.studies.dynamics",
        "which cue the network follows, epoch by epoch: Sebra against ERM",
    ),
    "noise": (
        "sebra_bench.studies.noise",
        "how well wrong labels are found, and what removing them gives back",
    ),
    "peel": (
        "sebra_bench.studies.peel",
        "alignment of peel's stages with each attribute, beside the faithful method's reversal",
    ),
    "published": (
        "sebra_bench.studies.published",
        "ranking and debiasing with the published settings, beside what the published code gives",
    ),
    "qualitative": (
        "sebra_bench.studies.qualitative",
        "pictures of both ends of the ranking, and of the neurons that count most",
    ),
    "robustness": (
        "sebra_bench.studies.robustness",
        "what unequal classes and wrong labels cost peel and the faithful method",
    ),
    "symmetry": (
        "sebra_bench.studies.symmetry",
        "training loss of samples with and without the shortcuts",
    ),
}


def study_function(name: str) -> Callable[[Any], Any]:
    """The study registered under `name`."""
    if name not in STUDIES:
        raise UsageError(f"study: no study {name!r}; choose from {', '.join(STUDIES)}")
    function: Callable[[Any], Any] = getattr(import_module(STUDIES[name][0]), name)
    return function
