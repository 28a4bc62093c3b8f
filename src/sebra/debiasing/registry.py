"""Debiasing methods by name. A name is imported only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sebra.errors import UsageError
from sebra.plugins import METHODS as GROUP
from sebra.plugins import plugins

if TYPE_CHECKING:
    from sebra.debiasing.method import Method

METHODS = plugins(
    GROUP,
    {
        "auto": "sebra.debiasing.auto:Auto",
        "sebra": "sebra.debiasing.sebra:Sebra",
        "stages": "sebra.debiasing.stages:Stages",
        "erm": "sebra.debiasing.erm:Erm",
    },
)


def method_class(name: str) -> type[Method[Any]]:
    """The method registered under `name`."""
    if name not in METHODS:
        raise UsageError(
            f"--method: no debiasing method {name!r}; choose from {', '.join(METHODS)}"
        )
    found: type[Method[Any]] = METHODS[name].load()
    return found
