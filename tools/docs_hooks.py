"""Hooks of the documentation site: what pages link to outside of docs/ is taken into the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = "repository"
_LINK = re.compile(r"\]\(((?:\.\./)+)((?:benchmarks|src|tools|tests)/[^)#\s]+)\)")
_FOLDERS = {"Commands": "commands", "Data sets": "datasets"}


def on_config(config: Any) -> Any:
    """The pages of a folder, the one that lists them first."""
    for part in config.nav:
        for entry in next(iter(part.values())) if isinstance(part, dict) else ():
            if not isinstance(entry, dict):
                continue
            for title, target in entry.items():
                if title in _FOLDERS and target == f"{_FOLDERS[title]}/":
                    pages = sorted(p.name for p in (ROOT / "docs" / _FOLDERS[title]).glob("*.md"))
                    pages.insert(0, pages.pop(pages.index("README.md")))
                    entry[title] = [f"{_FOLDERS[title]}/{name}" for name in pages]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Rows of results and sources, as files beside the pages."""
    from mkdocs.structure.files import File

    wanted = set()
    for page in (ROOT / "docs").rglob("*.md"):
        wanted |= {found[1] for found in _LINK.findall(page.read_text(encoding="utf-8"))}
    for name in sorted(wanted):
        path = ROOT / name
        if path.is_file():
            files.append(File.generated(config, f"{OUTSIDE}/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/ lead to those files."""
    up = "../" * page.file.src_uri.count("/")
    return _LINK.sub(lambda m: f"]({up}{OUTSIDE}/{m[2]})", markdown)
