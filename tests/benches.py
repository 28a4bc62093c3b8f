"""What tests of benchmarks share: short options and a folder for the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sebra.runs.folder import RunFolder
from sebra_bench.plan import BenchOptions, parse_specs
from sebra_bench.rows import ROWS, read_rows

QUICK = ("epochs=2", "rank.epochs=2")


def options(methods: str, seeds: int = 2, **more: Any) -> BenchOptions:
    more = {"overrides": QUICK, "min_group": 1, **more}
    return BenchOptions(parse_specs(methods), seeds, **more)


def folder(tmp_path: Path, name: str = "run") -> RunFolder:
    return RunFolder.create(str(tmp_path / name), "bench")


def row_of(run: Path, method: str, seed: int = 0, kind: str = "model") -> dict[str, Any]:
    """The row of one run in a run folder."""
    (row,) = (
        row
        for row in read_rows(run / ROWS)
        if (row["kind"], row["method"], row["seed"]) == (kind, method, seed)
    )
    return row


def runs_in(run: Path) -> list[str]:
    """What was run, in order: `kind method [on ranker] seed`."""
    return [
        " ".join(
            [
                r["kind"],
                r["method"],
                *(["on", r["ranker"]] if "ranker" in r else []),
                str(r["seed"]),
            ]
        )
        for r in read_rows(run / ROWS)
    ]
