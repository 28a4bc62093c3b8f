"""A pytest plugin for mutmut, which reads a private name that newer releases of pytest dropped."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    if not hasattr(item, "_nodeid"):
        item._nodeid = item.nodeid
