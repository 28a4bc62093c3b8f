"""The paper's method with the published settings, beside what the published code gives.

Ranking and a few epochs of debiasing by `paper/<layout>`; fidelity.py has the other side's figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sebra.measuring.ranks import by_class, somers_d
from sebra.samples.table import true_groups
from sebra_bench.fidelity import BUCKETS, EPOCHS, KIND, buckets_table, figures_of, figures_table
from sebra_bench.plan import BOTH, OWN_RANKER, Spec, tables_of
from sebra_bench.rows import Row, present
from sebra_bench.seeds import mean_std
from sebra_bench.studies.common import Study, new_figure, require_true_groups, save_figure
from sebra_bench.workbench import Workbench


def published(bench: Workbench) -> Study:
    """Ranks and debiases with every seed; the epoch is chosen by validation groups and by class."""
    require_true_groups(bench, KIND)
    rows = [_row(bench, seed) for seed in range(bench.options.seeds)]
    tables = [figures_table(bench.name, rows), buckets_table(rows)]
    return Study(tables, _draw(bench, rows), mean_std([figures_of(row) for row in rows]))


def _row(bench: Workbench, seed: int) -> Row:
    spec = Spec("sebra", "sebra", (f"epochs={EPOCHS}", *bench.options.method_overrides))
    ranker = Spec(OWN_RANKER, OWN_RANKER, bench.options.ranker_overrides)
    key = bench.key(KIND, spec, seed, ranker)
    identity = bench.model_identity(spec, seed, ranker)
    found = bench.rows.find(key, identity)
    if found is not None:
        return found
    trained = bench.trained(spec, seed, ranker, BOTH, test=False)
    assert trained.ranked is not None
    assert trained.run.ranking is not None
    chosen = {
        kind: {"selection": trained.take(kind), **trained.run.evaluate()}
        for kind in tables_of(BOTH)
    }
    row = {
        **key,
        **bench.row_of(trained, identity, None),
        **chosen,
        "ranking": {**trained.ranked["ranking"], **_by_bucket(bench, trained.run.ranking.table)},
    }
    return bench.rows.add(present(row))


def _by_bucket(bench: Workbench, table: Any) -> dict[str, Any]:
    """Sizes of the buckets over all classes, and agreement where samples of a bucket are tied."""
    bucket = table["bucket"].to_numpy()
    rows = bench.samples.rows("train")
    groups, labels = true_groups(bench.samples)[rows], bench.samples.labels[rows]
    agreement = list(by_class(somers_d, bucket, groups, labels).values())
    sizes = np.unique(bucket, return_counts=True)[1].tolist()
    return {"bucket_sizes": sizes, "somers_d_by_bucket": float(np.mean(agreement))}


def _draw(bench: Workbench, rows: Sequence[Row]) -> list[Path]:
    figure, axes = new_figure(6, 3.2)
    for row in rows:
        axes.plot(row["ranking"]["bucket_sizes"], color="0.5", marker="o", markersize=3)
    if bench.name == "urbancars":
        axes.plot(BUCKETS, color="0.0", linestyle="--", marker="s", label="published code")
        axes.legend(frameon=False)
    axes.set_xlabel("bucket, as used")
    axes.set_ylabel("samples")
    return save_figure(figure, bench, KIND)
