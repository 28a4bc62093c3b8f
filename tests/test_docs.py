"""The docs say what the commands do, and the commands in them run."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sebra.cli.main import run as cli

LINKS = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def tool(repo_root: Path) -> Any:
    spec = importlib.util.spec_from_file_location(
        "command_pages", repo_root / "tools" / "command_pages.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_has_its_page_and_the_page_is_up_to_date(repo_root: Path) -> None:
    made = tool(repo_root).pages()
    folder = repo_root / "docs" / "commands"
    found = {p.name: p.read_text(encoding="utf-8") for p in folder.glob("*.md")}
    assert found == made, "run: python tools/command_pages.py"


def test_links_between_pages_lead_somewhere(repo_root: Path) -> None:
    pages = [repo_root / "docs" / n for n in ("tutorial.md", "api.md", "discoveries.md")]
    for folder in ("commands", "how"):
        pages += sorted((repo_root / "docs" / folder).glob("*.md"))
    broken = [
        f"{page.name}: {target}"
        for page in pages
        if page.is_file()
        for target in LINKS.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(repo_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs mkdocs-material (make setup)")
    pytest.importorskip("mkdocstrings", reason="needs mkdocstrings (make setup)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path]
    done = subprocess.run(
        [str(word) for word in command],
        cwd=repo_root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    page = (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert "Trains a model on DATA" in page  # from the code
    outside = re.findall(r'(?:src|href)="(https?:[^"]+)"', page)
    assert [url for url in outside if "squidfunk" not in url] == []


def test_pictures_of_the_docs_are_small(repo_root: Path) -> None:
    pictures = list((repo_root / "docs" / "pictures").glob("*"))
    assert pictures
    assert all(p.stat().st_size < 400_000 for p in pictures)


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_api_page_runs(
    repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for block in blocks(repo_root / "docs" / "api.md", "python"):
        exec(compile(block, "api.md", "exec"), scope)  # noqa: S102
    assert scope["ranking"].table["rank"].min() == 0
    assert Path("report.html").is_file()


@pytest.mark.long
def test_the_commands_of_the_tutorial_run(
    repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(os.environ.get("SEBRA_DATA", repo_root / ".." / "shared" / "data")).resolve()
    if not (data / "bar").is_dir():
        pytest.skip(f"no BAR in {data} (SEBRA_DATA)")
    monkeypatch.setenv("SEBRA_DATA", str(data))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marks.csv").write_text("id,mark,label\n", encoding="utf-8")
    for block in blocks(repo_root / "docs" / "tutorial.md", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(os.path.expandvars(line))
            if words[:1] == ["sebra"]:
                assert cli(words[1:]) == 0, line
    assert (tmp_path / "runs" / "bar" / "report.html").is_file()


def test_results_are_rows_and_few_files(repo_root: Path) -> None:
    """Tables and pictures are made from rows, so none lies beside them to say something else."""
    files = [p for p in (repo_root / "benchmarks" / "results").rglob("*") if p.is_file()]
    assert {p.suffix for p in files if p.name != "README.md"} == {".jsonl"}
    assert len(files) <= 80
