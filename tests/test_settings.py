"""Few settings, each with what changes when it is turned."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

MOST = 60


@pytest.fixture
def tool(repo_root: Path) -> Any:
    file = repo_root / "tools" / "settings_page.py"
    spec = importlib.util.spec_from_file_location("settings_page", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_few_of_them(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = [f"{owner.__name__}.{name}" for owner, name in tool.settings()]
    with capsys.disabled():
        sys.stdout.write(f"\n{len(found)} settings of methods: {', '.join(found)}\n")
    assert len(found) <= MOST


def test_each_says_what_changes_when_it_is_turned(tool: Any) -> None:
    assert [name for (_, name), turned in tool.settings().items() if len(turned) < 15] == []


def test_the_page_is_up_to_date(tool: Any, repo_root: Path) -> None:
    text = (repo_root / "docs" / "settings.md").read_text(encoding="utf-8")
    assert text == tool.page(), "run: python tools/settings_page.py"
