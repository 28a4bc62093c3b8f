"""Where a row was measured: the commit is the one that is said, else the one of the checkout."""

from __future__ import annotations

import subprocess

import pytest

from sebra.errors import UsageError
from sebra_bench import facts


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The package's file in a checkout of its own, with one commit."""
    place = tmp_path / "src" / "sebra" / "facts.py"
    place.parent.mkdir(parents=True)
    place.write_text("", encoding="utf-8")
    monkeypatch.setattr(facts, "__file__", str(place))
    monkeypatch.delenv("SEBRA_COMMIT", raising=False)

    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return place, git("rev-parse", "--short=12", "HEAD")


def test_a_checkout_knows_its_commit_and_whether_files_differ(copied):
    place, head = copied
    assert facts.commit() == head
    place.write_text("changed", encoding="utf-8")
    assert facts.commit() == f"{head}+"


def test_what_is_said_goes_before_the_history_of_a_copy(copied, monkeypatch):
    _, head = copied
    monkeypatch.setenv("SEBRA_COMMIT", "abc123")
    assert facts.commit() == "abc123"
    monkeypatch.setenv("SEBRA_COMMIT", "")
    assert facts.commit() == head


def test_without_history_the_commit_is_unknown_unless_said(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "__file__", str(tmp_path / "a" / "b" / "c" / "facts.py"))
    monkeypatch.delenv("SEBRA_COMMIT", raising=False)
    assert facts.commit() is None
    monkeypatch.setenv("SEBRA_COMMIT", "abc123")
    assert facts.commit() == "abc123"


def test_the_runs_beside_this_one_are_as_the_environment_says(monkeypatch):
    monkeypatch.delenv("SEBRA_RUNS_TOGETHER", raising=False)
    assert facts.runs_beside() == 1
    monkeypatch.setenv("SEBRA_RUNS_TOGETHER", "5")
    assert facts.runs_beside() == 5
    monkeypatch.setenv("SEBRA_RUNS_TOGETHER", "many")
    with pytest.raises(UsageError, match="SEBRA_RUNS_TOGETHER"):
        facts.runs_beside()
