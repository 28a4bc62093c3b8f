"""The paper's figures, to stand beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "paper_figures.toml"
UNVERIFIED = "metric unverified"


@cache
def _all() -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    return dict(tomllib.loads(FILE.read_text(encoding="utf-8")))


class Paper:
    """What the paper says about one layout; empty for data it does not use."""

    def __init__(self, layout: str | None) -> None:
        self._found: Mapping[str, Any] = _all().get(layout or "", {})

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def source(self) -> str:
        """Tables and backbone, in words."""
        return f"{self._found['tables']}, {self._found['backbone']}" if self._found else ""

    @property
    def doubtful(self) -> dict[str, str]:
        """Figures of models that cannot be compared as they are, with the reason."""
        return dict(self._found.get("doubtful", {}))

    def method(self, label: str) -> dict[str, dict[str, float]]:
        """Figures of a method as `{mean, std}`; a method with settings of its own has none."""
        return _figures(self._found.get("methods", {}).get(label, {}))

    def ranking(self, label: str, table: str = "rankings") -> dict[str, dict[str, float]]:
        """Figures of a ranker, from the table of rankings or of the ablation."""
        return _figures(self._found.get(table, {}).get(label, {}))

    def unverified(self, label: str, table: str = "rankings") -> bool:
        """Whether the paper's figure cannot come from the measure it is printed under."""
        return label in self._found.get(table, {}).get("metric_unverified", ())

    def minutes(self, phase: str) -> float | None:
        """The paper's time of a phase (`rank`, `debias`, `erm`)."""
        found = self._found.get("cost", {}).get(phase)
        return None if found is None else float(found)


def _figures(entries: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {k: dict(zip(("mean", "std"), v, strict=False)) for k, v in entries.items()}
