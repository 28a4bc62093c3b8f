"""Writes docs/settings.md from the configurations themselves: `python tools/settings_page.py`.

A test compares the page with what this makes, so that settings and docs cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sebra.debiasing.method import TrainConfig
from sebra.debiasing.registry import METHODS, method_class
from sebra.ranking.registry import RANKERS, ranker_class
from sebra.settings import MODES, StepConfig, of_mode

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
Settings = dict[tuple[type, str], str]  # what changes, by owner and name
_STEP = ("epochs", "steps", "optimizer", "lr", "momentum", "weight_decay", "batch")
_SHARED: dict[type, str] = {
    StepConfig: "Every method that trains a network",
    TrainConfig: "Every debiasing method",
}
_HEAD = """# Settings

Made by `python tools/settings_page.py` from the configurations themselves; not to be edited.
{count} settings in all; one that several methods share counts once. `--set key=value` turns one,
`--set rank.key=value` one of the ranker that `debias` or `bench` takes; [presets](presets.md) turn
several.

Defaults are for a pretrained network that is tuned as a whole; over frozen features (f) and from
scratch (s) where they differ.
"""


def settings_of_kind(kind: type) -> dict[tuple[type, str], str]:
    """The settings of a configuration, by the class that has them first and their name.

    The text is what changes when it is turned; a class may change the default of a parent's.
    """
    out: dict[tuple[type, str], str] = {}
    for field in dataclasses.fields(kind):
        parents = [c for c in reversed(kind.__mro__) if dataclasses.is_dataclass(c)]
        owner = next(c for c in parents if field.name in c.__dataclass_fields__)
        out[owner, field.name] = owner.__dataclass_fields__[field.name].metadata.get("turned", "")
    return out


def kinds() -> Iterator[tuple[str, type]]:
    """Every configuration with the name of its method."""
    for name in RANKERS:
        yield f"`rank --method {name}`", ranker_class(name).config_class
    for name in METHODS:
        yield f"`debias --method {name}`", method_class(name).config_class


def settings() -> Settings:
    """Every setting of every method, with what changes when it is turned."""
    out: Settings = {}
    for _, kind in kinds():
        for (owner, name), turned in settings_of_kind(kind).items():
            out[owner, name] = turned or _of_docstring(owner, name)
    return out


def _of_docstring(owner: type, name: str) -> str:
    text = " ".join(str(owner.__doc__).split())
    found = re.search(rf"(?:^|[ ,]){name}(?:, \w+)*: (.*?)\.(?: |$)", text)
    return found[1] if found else ""


def page() -> str:
    """The text of docs/settings.md."""
    every = settings()
    parts = [_HEAD.format(count=len(every))]
    for owner, title in _SHARED.items():
        parts.append(_table(f"## {title}", owner, every, defaults=owner is not StepConfig))
    seen = set(_SHARED)
    for name, kind in kinds():
        for owner in (c for c in reversed(kind.__mro__) if c not in seen):
            seen.add(owner)
            if any(c is owner for c, _ in every):
                parts.append(_table(f"## {name}", owner, every))
    parts.append(_steps())
    return "\n".join(parts)


def _table(
    title: str, owner: Any, every: dict[tuple[type, str], str], defaults: bool = True
) -> str:
    lead = "| setting | default | what changes when it is turned |\n| --- | --- | --- |"
    if not defaults:
        lead = "| setting | what changes when it is turned |\n| --- | --- |"
    lines = [title, "", lead]
    for (kind, name), turned in every.items():
        if kind is owner:
            shown = f" {_default(owner, name)} |" if defaults else ""
            lines.append(f"| `{name}` |{shown} {turned} |")
    return "\n".join([*lines, ""])


def _default(kind: Any, name: str) -> str:
    usual = {mode: of_mode(kind, mode).get(name, getattr(kind, name)) for mode in MODES}
    out = _shown(usual["finetune"])
    for mode in ("features", "scratch"):
        if usual[mode] != usual["finetune"]:
            out += f", {mode[0]} {_shown(usual[mode])}"
    return out


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _steps() -> str:
    lines = ["## How each method is stepped", ""]
    lines += ["| method | " + " | ".join(f"`{n}`" for n in _STEP) + " |"]
    lines += ["| --- " * (len(_STEP) + 1) + "|"]
    for name, kind in kinds():
        cells = [_default(kind, n) if hasattr(kind, n) else "–" for n in _STEP]
        if issubclass(kind, StepConfig):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{len(settings())} settings in {PAGE}\n")
