"""What other packages add: things that they name under an entry-point group of this one.

What each group holds is in docs/architecture.md. Trackers are classes `(name)` with `send(folder)`;
evaluations return `measure(model, samples, split, scores)`, or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from sebra.whole import of_toml

COMMANDS, EVALUATIONS = "sebra.commands", "sebra.evaluations"
RANKING_EVALUATIONS, TRACKERS = "sebra.ranking_evaluations", "sebra.trackers"
MODELS, TUNERS, COPIES = "sebra.models", "sebra.tuners", "sebra.copies"
CHECKS, VOCABULARIES = "sebra.checks", "sebra.vocabularies"
EXPLAINERS, WARNINGS = "sebra.explainers", "sebra.warnings"
METHODS, RANKERS, LAYOUTS = "sebra.methods", "sebra.rankers", "sebra.layouts"
_SOURCE_TREE = Path(__file__).resolve().parents[2] / "pyproject.toml"


def plugins(group: str, own: Mapping[str, str] | None = None) -> dict[str, EntryPoint]:
    """What a group holds, by name, after what the product itself has (`own`); none is imported."""
    found = {name: EntryPoint(name, value, group) for name, value in (own or {}).items()}
    found |= {e.name: e for e in sorted(_installed().select(group=group), key=lambda e: e.name)}
    return found | _of_source_tree(_SOURCE_TREE, group)


@cache
def _installed() -> Any:
    return entry_points()  # of all packages: to look for one group takes as long as for all


@cache
def _of_source_tree(file: Path, group: str) -> dict[str, EntryPoint]:
    """Those of a checkout that is not installed, or was when it had others."""
    project = _project(file)
    named = project.get("entry-points", {}).get(group, {})
    return {name: EntryPoint(name, value, group) for name, value in named.items()}


@cache
def _project(file: Path) -> dict[str, Any]:
    try:
        project: dict[str, Any] = of_toml(file.read_text(encoding="utf-8"))["project"]
    except (OSError, KeyError, ValueError):
        return {}
    return project if project.get("name") == __package__ else {}
