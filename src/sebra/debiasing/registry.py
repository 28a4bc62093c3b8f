"""Debiasing methods by name. A name is imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sebra.errors import UsageError

if TYPE_CHECKING:
    from sebra.debiasing.method import Method

METHODS: dict[str, tuple[str, str]] = {
    "sebra": ("sebra.debiasing.sebra", "Sebra"),
    "stages": ("sebra.debiasing.stages", "Stages"),
    "erm": ("sebra.debiasing.erm", "Erm"),
    "groupdro": ("sebra.debiasing.groupdro", "GroupDro"),
    "lff": ("sebra.debiasing.lff", "Lff"),
    "jtt": ("sebra.debiasing.jtt", "Jtt"),
    "debian": ("sebra.debiasing.debian", "Debian"),
    "dfr": ("sebra.debiasing.dfr", "Dfr"),
    "lle": ("sebra.debiasing.lle", "Lle"),
    "resample": ("sebra.debiasing.resample", "Resample"),
}


def method_class(name: str) -> type[Method[Any]]:
    """The method registered under `name`."""
    if name not in METHODS:
        raise UsageError(
            f"--method: no debiasing method {name!r}; choose from {', '.join(METHODS)}"
        )
    module, attribute = METHODS[name]
    found: type[Method[Any]] = getattr(import_module(module), attribute)
    return found
