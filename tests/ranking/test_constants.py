"""The table of constants in the docs names every one that the code has, and there are few."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

from sebra.ranking.peel import PeelConfig
from sebra.settings import StepConfig

FILES = [
    *(f"ranking/{name}.py" for name in ("peel", "candidate", "evidence", "clouds", "views")),
    *(f"ranking/{name}.py" for name in ("atoms", "crossfit", "balance", "order")),
    *(f"ranking/{name}.py" for name in ("noise", "noise_heads", "controls")),
    "workflows/verdict.py",
]
NUMBERS = {"_EDGES": 3}  # bins, and both ends of the window
BEFORE = 37  # about as many as there were before patterns stood by a chance


def is_number(node: ast.expr) -> bool:
    """Whether a value is a number, or made of numbers alone."""
    return any(
        isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in ast.walk(node)
    )


def constants(file: Path) -> set[str]:
    """Names of the numbers that a module sets for itself."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and is_number(node.value):
            names = {n.id for target in node.targets for n in ast.walk(target) if hasattr(n, "id")}
            found |= {name for name in names if name.isupper()}
    return found


def section(repo_root: Path) -> tuple[list[str], set[str]]:
    """Names in the first column of the table, and those below it that are no choices."""
    text = (repo_root / "docs" / "peeling.md").read_text(encoding="utf-8")
    text = text.split("### Constants")[1].split("**Wrong labels.**")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    listed = [name for row in rows[2:] for name in re.findall("`(\\w+)`", row.split("|")[1])]
    return listed, set(re.findall("`(\\w+)`", text.split("No choices")[1]))


def test_every_constant_is_in_the_table_and_there_are_fewer_than_before(repo_root: Path) -> None:
    package = repo_root / "src" / "sebra"
    held = set().union(*(constants(package / name) for name in FILES))
    shared = {f.name for f in dataclasses.fields(StepConfig)}
    held |= {f.name for f in dataclasses.fields(PeelConfig)} - shared
    listed, others = section(repo_root)
    assert len(listed) == len(set(listed))
    assert set(listed) | others == held
    assert not set(listed) & others
    assert sum(NUMBERS.get(name, 1) for name in listed) < BEFORE
