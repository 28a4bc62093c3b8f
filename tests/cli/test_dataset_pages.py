"""The pages of docs/datasets show what the program says, and none is missing."""

from __future__ import annotations

import re

import pytest

import miniatures

NAMES = ("demo", *miniatures.IMAGE_LAYOUTS)
_CHECK = re.compile(r"```console\n\$ sebra data check '?([^'\n]+)'?\n(.*?)\n```", re.DOTALL)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_the_check_of_its_miniature(call_cli, repo_root, tmp_path, name):
    page = (repo_root / "docs" / "datasets" / f"{name}.md").read_text(encoding="utf-8")
    [(data, shown)] = _CHECK.findall(page)
    if name != "demo":
        layout, _, folder = data.partition(":")
        miniatures.IMAGE_LAYOUTS[layout](tmp_path / folder)
    said = call_cli("data", "check", data)
    assert said.status == 0, said.stderr
    assert [line.rstrip() for line in said.stdout.rstrip().splitlines()] == shown.splitlines()


def test_the_index_links_every_page(repo_root):
    folder = repo_root / "docs" / "datasets"
    index = (folder / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((\w+\.md)\)", index))
    assert linked == {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert {f"{name}.md" for name in NAMES} <= linked
