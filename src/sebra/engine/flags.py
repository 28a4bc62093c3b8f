"""Training flags of modules, which a network need not have all alike: a norm may be frozen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def training_flags_kept(module: nn.Module) -> Iterator[None]:
    """Every module has its own training flag again after the block."""
    flags = [(m, m.training) for m in module.modules()]
    try:
        yield
    finally:
        for m, flag in flags:
            m.training = flag
