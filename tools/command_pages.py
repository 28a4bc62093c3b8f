"""Writes docs/commands/*.md from the command line's own help: `python tools/command_pages.py`.

A test compares the pages with what this makes, so that help and docs cannot drift apart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from sebra.cli.main import app

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "commands"


def pages() -> dict[str, str]:
    """File name and text of every page."""
    found = list(_commands(get_command(app), "sebra"))
    out = {f"{_slug(name)}.md": _page(name, command) for name, command in found}
    lines = [f"| [`{name}`]({_slug(name)}.md) | {_first(command)} |" for name, command in found]
    out["README.md"] = (
        "# Commands\n\n| command | does |\n| --- | --- |\n" + "\n".join(lines) + "\n\n"
        "Every command: `--help` with an example; `--json` prints one JSON object on stdout; "
        "progress and messages go to stderr. Exit status 0 done, 2 wrong usage or wrong data, "
        "1 anything else, 130 interrupted, 143 terminated.\n"
    )
    return out


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    for key in inner:
        # `sebra bench DATA` is `sebra bench run DATA`.
        yield from _commands(inner[key], name if key == "run" else f"{name} {key}")
    if not inner:
        yield name, command


def _slug(name: str) -> str:
    return name.removeprefix("sebra ").replace(" ", "-")


def _first(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _page(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([name, *(_metavar(p) for p in arguments), "[OPTIONS]"])
    text = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    parts = [f"# `{name}`", text, f"```text\n{usage}\n```"]
    if arguments:
        rows = [f"| `{_metavar(p)}` | {_cell(p.help)} |" for p in arguments]
        parts.append("| argument | meaning |\n| --- | --- |\n" + "\n".join(rows))
    rows = [f"| `{_flags(p)}` | {_default(p)} | {_cell(p.help)} |" for p in options]
    parts.append("| option | default | meaning |\n| --- | --- | --- |\n" + "\n".join(rows))
    if command.epilog:
        parts.append(command.epilog)
    return "\n\n".join(parts) + "\n"


def _metavar(p: Any) -> str:
    return str(p.metavar or p.name.upper())


def _flags(p: Any) -> str:
    flags = ", ".join(p.opts)
    return flags if p.is_flag else f"{flags} {p.metavar or _kind(p.default)}"


def _kind(default: Any) -> str:
    return {int: "N", float: "X"}.get(type(default), "TEXT")


def _default(p: Any) -> str:
    if p.is_flag or p.default in (None, ""):
        return ""
    return f"`{p.default}`"


def _cell(text: str | None) -> str:
    shown = " ".join((text or "").split())
    return shown.replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Writes the pages; removes those of commands that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
    sys.stdout.write(f"{len(made)} pages in {FOLDER}\n")


if __name__ == "__main__":
    main()
