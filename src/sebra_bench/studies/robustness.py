"""What unequal classes and wrong labels cost a ranking: balanced peeling and the faithful method.

Troubles are made here, from the training split: one class is thinned out, or labels are flipped.
Attributes decide which samples of a class stay and how good a ranking is; rankers never see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra.engine.task import Task
from sebra.errors import CollapsedError, UsageError
from sebra.loading.inputs import Inputs
from sebra.measuring.ranks import quality_of
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Blind
from sebra.ranking.registry import ranker_class
from sebra.samples.table import FeatureArray, Samples, true_groups
from sebra.workflows.prepared import Prepared, head_over
from sebra_bench.label_noise import inject_noise
from sebra_bench.plan import Spec, with_shared
from sebra_bench.rows import Row
from sebra_bench.seeds import mean_std
from sebra_bench.studies.common import (
    GREYS,
    HATCHES,
    Study,
    new_figure,
    ranker_settings,
    require_true_groups,
    save_figure,
)
from sebra_bench.tables import ABSENT, Table
from sebra_bench.workbench import Workbench

Ints = npt.NDArray[np.int64]
Figures = dict[str, dict[str, float]]

CLEAN = "as it is"
RATIOS = (20, 100)  # of the largest class to the thinned one
NOISE = (0.1, 0.2)
LEAST = 20  # samples of each conflicting group that a thinned class keeps, where it has them
ALLOWED = 0.1  # what a trouble may cost in Somers' D
METHODS = (Spec("peel", "peel"), Spec("sebra", "sebra"))
_BLOCK = 8192


@dataclass(frozen=True)
class Trouble:
    """A training split with something wrong.

    rows: places in the training split that are left. labels: theirs, as rankers see them. right:
    which of them bear their true label; quality is counted over these.
    """

    name: str
    rows: Ints
    labels: Ints
    right: npt.NDArray[np.bool_]


def robustness(bench: Workbench) -> Study:
    """Somers' D of peel and of the faithful method: clean, with unequal classes, with wrong labels.

    Which class is thinned out goes round with the seed.
    """
    if not bench.samples.attributes:
        raise UsageError(
            f"study robustness: {bench.samples.source} has no attribute columns, so the quality "
            "of a ranking cannot be measured"
        )
    require_true_groups(bench, "robustness")
    specs = with_shared(METHODS, ranker_settings(bench), ranker_class)
    rows: list[Row] = []
    for seed in range(bench.options.seeds):
        bench.to_rank(seed)  # unreadable images leave first
        every = troubles(bench.samples, seed)
        rows += [_row(bench, spec, seed, trouble, every) for trouble in every for spec in specs]
    found = figures_of(rows)
    metrics = {"robustness": {"allowed": ALLOWED, "held": held(found), "troubles": found}}
    return Study([_table(bench, rows, found)], _draw(bench, found), metrics)


def troubles(samples: Samples, seed: int) -> list[Trouble]:
    """The training split as it is, and in every trouble that its size allows."""
    labels = samples.labels[samples.rows("train")]
    everyone = np.arange(len(labels))
    sound = np.ones(len(labels), dtype=np.bool_)
    out = [Trouble(CLEAN, everyone, labels, sound)]
    for ratio in RATIOS:
        rows = thinned(samples, ratio, seed)
        if rows is not None:
            out.append(Trouble(f"classes 1:{ratio}", rows, labels[rows], sound[rows]))
    for share in NOISE:
        noisy, changed = inject_noise(samples, share, seed=seed)
        train = samples.rows("train")
        name = f"{share:.0%} wrong labels"
        out.append(Trouble(name, everyone, noisy.labels[train], ~changed[train]))
    return out


def thinned(samples: Samples, ratio: int, seed: int) -> Ints | None:
    """Places in the training split that are left when one class shrinks to 1:ratio.

    Groups keep their proportions, but every conflicting group keeps `LEAST` samples, or all it has
    where they are fewer. None where the class would then have no more samples that follow every
    shortcut than samples that do not.
    """
    train = samples.rows("train")
    labels, groups = samples.labels[train], true_groups(samples)[train]
    counts = np.bincount(labels, minlength=len(samples.classes))
    chosen = seed % len(samples.classes)
    size = round(int(counts.max()) / ratio)
    sizes = np.bincount(groups[labels == chosen])
    if size >= counts[chosen]:
        return None
    keep = np.maximum(np.round(sizes * size / counts[chosen]).astype(np.int64), LEAST)
    keep = np.minimum(keep, sizes)
    keep[0] = size - keep[1:].sum()
    if keep[0] < size / 2:
        return None
    rng = np.random.default_rng([seed, ratio])
    left = [np.flatnonzero(labels != chosen)]
    for group, number in enumerate(keep.tolist()):
        here = np.flatnonzero((labels == chosen) & (groups == group))
        left.append(rng.permutation(here)[:number])
    return np.sort(np.concatenate(left))


def _row(
    bench: Workbench, spec: Spec, seed: int, trouble: Trouble, every: Sequence[Trouble]
) -> Row:
    """The row of one ranking in one trouble; finished ones are read.

    That of the clean ranking also says how good it is on the samples that count in every trouble.
    """
    key = {"kind": "trouble", "method": spec.label, "trouble": trouble.name, "seed": seed}
    identity = {**bench.ranking_identity(spec, seed), "trouble": trouble.name}
    known = bench.rows.find(key, identity)
    if known is not None:
        return known
    prepared = bench.to_rank(seed, spec.name)
    task = task_in(prepared, trouble)
    ranker = ranker_class(spec.name)(bench.ranker_config(spec))
    what = f"{spec.label}, {trouble.name}, seed {seed}"
    with bench.running(what) as (session, meter), meter.phase("rank"):
        result = ranker.rank(task, session, Blind())
    if result.collapsed:
        raise CollapsedError(result.collapsed)
    rank = ranks_within_classes(result.bucket, result.score, trouble.labels)
    train, right = prepared.samples.rows("train"), trouble.right
    stages = {name: column[right] for name, column in result.stages.items()}
    quality = quality_of(prepared.samples, train[trouble.rows][right], rank[right], stages or None)
    assert quality is not None
    clean: dict[str, Any] = {}
    if trouble.name == CLEAN:
        counted = {t.name: t.rows[t.right] for t in every}
        found = {n: quality_of(prepared.samples, train[at], rank[at]) for n, at in counted.items()}
        clean["same_samples"] = {n: q["somers_d"] for n, q in found.items() if q is not None}
    row = {
        **key,
        "samples": np.bincount(trouble.labels, minlength=task.classes).tolist(),
        "ranking": {**quality, **result.details},
        **clean,
        **meter.result(),
        **bench.facts(prepared),
        "notes": list(session.notes),
        "identity": identity,
    }
    return bench.rows.add(row)


def task_in(prepared: Prepared, trouble: Trouble) -> Task:
    """The training task with this trouble; features are shared, not computed again."""
    task = prepared.rank_task()
    targets = torch.from_numpy(trouble.labels).to(task.device)
    if len(trouble.rows) == len(task):
        return replace(task, targets=targets)
    kept = torch.from_numpy(trouble.rows).to(task.device)
    task = replace(task.subset(kept), targets=targets)
    if prepared.mode != "features":
        return task
    # Standardised by what is left: samples that are not there must not leave a trace.
    everyone = torch.arange(len(task), device=task.device)
    values = torch.cat([task.batch(part).cpu() for part in torch.split(everyone, _BLOCK)]).numpy()
    inputs = Inputs(FeatureArray(values, np.arange(len(values))), task.device)
    return replace(task, inputs=inputs, rows=everyone, build=head_over(inputs, task.classes))


def figures_of(rows: Sequence[Row]) -> dict[str, Figures]:
    """Per trouble and method: Somers' D over seeds, and what it lost against the clean runs.

    `clean` is Somers' D of the clean run over the samples that count in the trouble, so that the
    two differ in nothing but the ranking; `drop` is the mean over seeds of it less this one's.
    """
    clean = _clean(rows)
    out: dict[str, dict[str, Any]] = {}
    for row in rows:
        d, before = row["ranking"]["somers_d"], clean[row["method"], row["seed"]][row["trouble"]]
        out.setdefault(row["trouble"], {}).setdefault(row["method"], []).append(
            {"somers_d": d, "clean": before, "drop": before - d}
        )
    return {
        trouble: {m: _joined(values) for m, values in methods.items()}
        for trouble, methods in out.items()
    }


def _clean(rows: Sequence[Row]) -> dict[tuple[str, int], dict[str, float]]:
    """By method and seed: Somers' D of the clean ranking over the samples of each trouble."""
    return {(r["method"], r["seed"]): r["same_samples"] for r in rows if r["trouble"] == CLEAN}


def _joined(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found = mean_std(list(values))
    return {
        "somers_d": found["somers_d"]["mean"],
        "std": found["somers_d"].get("std", 0.0),
        "clean": found["clean"]["mean"],
        "drop": found["drop"]["mean"],
        "runs": len(values),
    }


def held(found: Mapping[str, Figures]) -> bool:
    """Whether no trouble cost peel more than is allowed."""
    return all(methods["peel"]["drop"] <= ALLOWED for methods in found.values())


def _table(bench: Workbench, rows: Sequence[Row], found: Mapping[str, Figures]) -> Table:
    table = Table(f"{bench.name}: Somers' D in trouble, and what was lost against the clean run")
    for trouble, methods in found.items():
        shown = {"training split": trouble}
        for method, figures in methods.items():
            spread = f" ± {figures['std']:.2f}" if figures["runs"] > 1 else ""
            shown[method] = f"{figures['somers_d']:.2f}{spread}"
            lost = trouble != CLEAN
            shown[f"{method}, clean"] = f"{figures['clean']:.2f}" if lost else ABSENT
            shown[f"{method}, drop"] = f"{figures['drop']:+.2f}" if lost else ABSENT
        table.shown.append(shown)
    clean = _clean(rows)
    for row in rows:
        table.figures.append(
            {
                "trouble": row["trouble"],
                "method": row["method"],
                "seed": row["seed"],
                "samples": " : ".join(map(str, row["samples"])),
                "somers_d": row["ranking"]["somers_d"],
                "clean": clean[row["method"], row["seed"]][row["trouble"]],
                "stages": len(row["ranking"].get("stages", ())),
            }
        )
    verdict = "at most" if held(found) else "in some trouble MORE THAN"
    table.remarks.append(f"peel loses {verdict} {ALLOWED} (mean over seeds)")
    table.remarks.append("clean: the ranking of the clean data, over the same samples")
    table.remarks.append(
        f"a thinned class keeps {LEAST} samples of each conflicting group, or all it has; which "
        "class is thinned goes round with the seed; wrong labels are left out of the count"
    )
    missing = [f"1:{r}" for r in RATIOS if f"classes 1:{r}" not in found]
    if missing:
        table.remarks.append(f"classes too small to be thinned to {', '.join(missing)}")
    return table


def _draw(bench: Workbench, found: Mapping[str, Figures]) -> list[Path]:
    figure, axes = new_figure(1.6 + 1.3 * len(found), 3.2)
    width = 0.8 / len(METHODS)
    for m, spec in enumerate(METHODS):
        axes.bar(
            [i + (m - (len(METHODS) - 1) / 2) * width for i in range(len(found))],
            [methods[spec.label]["somers_d"] for methods in found.values()],
            width,
            yerr=[methods[spec.label]["std"] for methods in found.values()],
            color=GREYS[m + 1],
            hatch=HATCHES[m],
            edgecolor="black",
            capsize=3,
            label=spec.label,
        )
    axes.set_xticks(range(len(found)), [name.replace(" ", "\n", 1) for name in found])
    axes.set_ylabel("Somers' D")
    axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, bench, "robustness")
