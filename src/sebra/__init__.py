"""Sebra: ranks labelled data by spuriosity, and trains models that do not need the shortcuts.

The names below are imported on first use, so that `import sebra` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "Model",
    "Ranking",
    "Scores",
    "SebraClassifier",
    "SebraRanker",
    "__version__",
    "audit",
    "debias",
    "evaluate",
    "rank",
    "report",
]

if TYPE_CHECKING:
    from sebra.api import audit, debias, evaluate, rank, report
    from sebra.debiasing.model import Model
    from sebra.measuring.groups import Scores
    from sebra.ranking.estimator import SebraRanker
    from sebra.ranking.ranking import Ranking
    from sebra.workflows.classifier import SebraClassifier
else:
    _HOMES = {
        "Model": "sebra.debiasing.model",
        "Ranking": "sebra.ranking.ranking",
        "Scores": "sebra.measuring.groups",
        "SebraClassifier": "sebra.workflows.classifier",
        "SebraRanker": "sebra.ranking.estimator",
        "audit": "sebra.api",
        "debias": "sebra.api",
        "evaluate": "sebra.api",
        "rank": "sebra.api",
        "report": "sebra.api",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module 'sebra' has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
