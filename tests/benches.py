"""What tests of benchmarks share: short options and a folder for the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sebra.runs.folder import RunFolder
from sebra_bench.plan import BenchOptions, parse_specs

QUICK = ("epochs=2", "rank.epochs=2")


def options(methods: str, seeds: int = 2, **more: Any) -> BenchOptions:
    more = {"overrides": QUICK, "min_group": 1, **more}
    return BenchOptions(parse_specs(methods), seeds, **more)


def folder(tmp_path: Path, name: str = "run") -> RunFolder:
    return RunFolder.create(str(tmp_path / name), "bench")
