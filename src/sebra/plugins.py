"""What other packages add: functions that they name under an entry-point group of this one.

`sebra.commands` holds functions `register(app)`, which add commands to the command line;
`sebra.evaluations` holds functions `wanted(data)`, which return what to measure beside DATA's test
split (`measure(model, samples, split, scores)`), or None.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

COMMANDS, EVALUATIONS = "sebra.commands", "sebra.evaluations"
_SOURCE_TREE = Path(__file__).resolve().parents[2] / "pyproject.toml"


def plugins(group: str) -> list[Callable[..., Any]]:
    """The functions of a group, imported now."""
    found = {entry.name: entry for entry in entry_points(group=group)}
    found |= {entry.name: entry for entry in _of_source_tree(group)}
    return [found[name].load() for name in sorted(found)]


def _of_source_tree(group: str) -> list[EntryPoint]:
    """Those of a checkout that is not installed, or was when it had others."""
    if not _SOURCE_TREE.is_file():
        return []
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    project = tomllib.loads(_SOURCE_TREE.read_text(encoding="utf-8")).get("project", {})
    if project.get("name") != __package__:
        return []
    named = project.get("entry-points", {}).get(group, {})
    return [EntryPoint(name, value, group) for name, value in named.items()]
