"""What other packages add through entry points."""

from __future__ import annotations

import pytest

from sebra import plugins


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A source tree whose pyproject.toml a test writes, beside what is installed."""
    file = tmp_path / "pyproject.toml"
    monkeypatch.setattr(plugins, "_SOURCE_TREE", file)
    return file


def test_a_checkout_that_is_not_installed_has_its_plugins(checkout):
    checkout.write_text(
        '[project]\nname = "sebra"\n[project.entry-points."sebra.things"]\nroot = "math:sqrt"\n'
    )
    assert plugins.plugins("sebra.things")["root"].load()(9) == 3


def test_the_project_around_an_installed_package_is_not_its_checkout(checkout):
    checkout.write_text(
        '[project]\nname = "other"\n[project.entry-points."sebra.things"]\nroot = "math:sqrt"\n'
    )
    assert plugins.plugins("sebra.things") == {}


def test_an_installed_package_has_no_checkout(checkout):
    assert plugins.plugins("sebra.things") == {}


def test_commands_of_plugins_are_in_the_help(call_cli):
    assert "bench" in call_cli("--help").stdout
    assert "urbancars" in call_cli("data", "make", "--help").stdout
