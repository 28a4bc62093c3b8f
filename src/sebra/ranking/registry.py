"""Rankers by name. A name is imported only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sebra.errors import UsageError
from sebra.plugins import RANKERS as GROUP
from sebra.plugins import plugins

if TYPE_CHECKING:
    from sebra.ranking.ranking import Ranker

RANKERS = plugins(
    GROUP,
    {"sebra": "sebra.ranking.sebra:SelfGuidedRanker", "peel": "sebra.ranking.peel:PeelRanker"},
)


def ranker_class(name: str, option: str = "--method") -> type[Ranker[Any]]:
    """The ranker registered under `name`; an error names `option`."""
    if name not in RANKERS:
        raise UsageError(f"{option}: no ranker {name!r}; choose from {', '.join(RANKERS)}")
    found: type[Ranker[Any]] = RANKERS[name].load()
    return found
