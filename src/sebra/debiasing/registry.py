"""Debiasing methods by name. A name is imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sebra.errors import UsageError

METHODS: dict[str, tuple[str, str]] = {
    "sebra": ("sebra.debiasing.contrastive", "Contrastive"),
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


def method_class(name: str) -> Any:
    """The method class registered under `name`; it has `config_class`.

    What a method needs can depend on its configuration: read `needs` from the instance.
    """
    if name not in METHODS:
        raise UsageError(
            f"--method: no debiasing method {name!r}; choose from {', '.join(METHODS)}"
        )
    module, attribute = METHODS[name]
    return getattr(import_module(module), attribute)
