"""What frozen features hold of each attribute, and what rankers make of them.

    python benchmarks/what_features_hold.py DATA WEIGHTS OUT.jsonl [--backbone resnet18]

DATA needs attributes and a val split. Rows of kind `auc`: a logistic regression that is *told* the
attribute, taught by the val split and up to 190 training samples of every group (groups weigh
alike), the best of three strengths on the test split: an upper bound. Rows of kind
`somers_d`: `sebra` and `peel` over the penultimate features alone, and over patch features.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import sebra
from sebra.engine import networks
from sebra.engine.patches import Directions, View
from sebra.engine.session import Session
from sebra.runs.meter import Meter
from sebra.samples.table import SPLITS, Samples
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Prepared, Source

MOST, BATCH, STRENGTHS = 190, 64, (0.1, 1.0, 10.0)


@torch.no_grad()
def views(prepared: Prepared) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Features of every sample by name, and the rows of the samples."""
    network = networks.build(prepared.backbone_spec(), 0, prepared.weights)
    z, cells, rows = [], [], []
    for name in SPLITS:
        task = prepared.task(name)
        view = View(network)
        view.look(task.inputs.batch(task.rows[:1]))
        assert view.has_cells, "this backbone has no map to look at"
        for part in torch.split(task.rows, BATCH):
            found = view.parts(view(task.inputs.batch(part)))
            z.append(found[0])
            cells.append(found[1])
        rows.append(prepared.samples.rows(name))
    whole = torch.cat(cells)
    by_cell = whole.permute(0, 2, 3, 1)
    few = Directions.of(by_cell[:: max(1, len(whole) // 512)].reshape(-1, whole.shape[1]), 32)
    return {
        "penultimate": torch.cat(z).numpy(),
        "map, averaged": whole.mean((2, 3)).numpy(),
        "cells, all channels": whole.flatten(1).numpy(),
        "cells, 32 directions": few(by_cell).flatten(1).numpy(),
    }, np.concatenate(rows)


def told(x: np.ndarray[Any, Any], target: Any, groups: Any, split: Any) -> float:
    """Area under the curve on the test split."""
    rng = np.random.default_rng(0)
    chosen = [np.flatnonzero(split == 1)]
    for g in np.unique(groups):
        here = np.flatnonzero((split == 0) & (groups == g))
        chosen.append(rng.permutation(here)[:MOST])
    fit, test = np.concatenate(chosen), np.flatnonzero(split == 2)
    weight = 1.0 / np.bincount(groups[fit])[groups[fit]]
    x = (x - x[fit].mean(0)) / (x[fit].std(0) + 1e-6) / np.sqrt(x.shape[1])
    scores = []
    for strength in STRENGTHS:
        model = LogisticRegression(C=1000 * strength, max_iter=400)
        model.fit(x[fit], target[fit], sample_weight=weight)
        scores.append(roc_auc_score(target[test], model.decision_function(x[test])))
    return float(max(scores))


def ranked(samples: Samples, x: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Somers' D of both rankers over the penultimate features and over patch features."""
    out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "X.npy", x)
        np.save(folder / "y.npy", np.array(samples.classes)[samples.labels])
        np.save(folder / "split.npy", np.array(SPLITS)[samples.split])
        for attribute in samples.attributes.values():
            np.save(folder / f"{attribute.name}.npy", np.array(attribute.levels)[attribute.codes])
        for method in ("sebra", "peel"):
            alone = sebra.rank(str(folder), method, attributes=tuple(samples.attributes))
            both = sebra.rank(method=method, **options)
            for view, ranking in (("penultimate", alone), ("patches", both)):
                found = ranking.details["metrics"]["ranking"]["somers_d"]
                out.append({"kind": "somers_d", "features": view, "of": method, "value": found})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("weights")
    parser.add_argument("out", type=Path)
    parser.add_argument("--backbone", default="resnet18")
    options = parser.parse_args()
    source = Source(options.data, 0, "cpu", "finetune", options.backbone, options.weights)
    prepared = prepare(source, Session(), Meter())
    found, rows = views(prepared)
    samples = prepared.samples.take(rows)
    codes = [a.codes for a in samples.attributes.values()]
    groups = np.unique(np.stack([samples.labels, *codes]), axis=1, return_inverse=True)[1]
    targets = {**{a.name: a.codes for a in samples.attributes.values()}, "class": samples.labels}
    table = [
        {"kind": "auc", "features": view, "of": name, "value": told(x, y, groups, samples.split)}
        for view, x in found.items()
        for name, y in targets.items()
    ]
    seen = {"data": options.data, "mode": "features", "backbone": options.backbone}
    table += ranked(samples, found["penultimate"], {**seen, "weights": options.weights})
    lines = (json.dumps({"data": options.data, **row}) for row in table)
    options.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
