"""Puts the page together: templates, styles, scripts and the policy that forbids the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sebra.showing.findings import marked
from sebra.showing.words import count, figure, name, page_json, percent, shortened, visible

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("store.js", "cards.js", "marks.js", "verdicts.js", "detail.js", "range.js", "browse.js",
           "page.js")  # fmt: skip


def render(
    context: Mapping[str, Any], template: str = "report.html.j2", scripts: Sequence[str] = SCRIPTS
) -> str:
    """The whole page as text."""
    script = _script(scripts)
    return (
        _environment()
        .get_template(template)
        .render(
            **context,
            style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
            script=Markup(script),
            policy=policy(script),
        )
    )


def policy(script: str) -> str:
    """No network at all, and no script but this one: not even one that a name smuggled in."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _script(names: Sequence[str]) -> str:
    parts = [(TEMPLATES / "script" / part).read_text(encoding="utf-8") for part in names]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        name=name,
        marked=marked,
        figure=figure,
        count=count,
        percent=percent,
        page_json=page_json,
        visible=visible,
        shortened=shortened,
    )
    return environment
