"""Rankers by name. A name is imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sebra.errors import UsageError

RANKERS: dict[str, tuple[str, str]] = {
    "sebra": ("sebra.ranking.sebra", "SebraRanker"),
    "peel": ("sebra.ranking.peel", "PeelRanker"),
    "erm": ("sebra.ranking.baselines", "ErmRanker"),
    "random": ("sebra.ranking.baselines", "RandomRanker"),
    "neurons": ("sebra.ranking.neurons", "NeuronsRanker"),
}


def ranker_class(name: str, option: str = "--method") -> Any:
    """The ranker class registered under `name`; it has `config_class`. An error names `option`."""
    if name not in RANKERS:
        raise UsageError(f"{option}: no ranker {name!r}; choose from {', '.join(RANKERS)}")
    module, attribute = RANKERS[name]
    return getattr(import_module(module), attribute)
