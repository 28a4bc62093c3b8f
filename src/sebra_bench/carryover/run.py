"""Runs methods on many sets with one setting; every finished run is a line of `rows.jsonl`."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sebra import __version__
from sebra.engine.passes import evaluating, predict
from sebra.engine.session import ProgressSink, Session, Silent
from sebra.errors import SebraError
from sebra.measuring.groups import score
from sebra.runs.meter import Meter
from sebra.workflows.debias import DebiasOptions, DebiasRun, debias_prepared
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Prepared, Source
from sebra_bench.carryover.figures import calibration_error, finding, id_weights
from sebra_bench.carryover.planting import FACTS, load
from sebra_bench.carryover.references import (
    LOGISTIC,
    REFERENCES,
    TRUE_GROUPS,
    even_draws,
    logistic,
)
from sebra_bench.carryover.sets import ORDINARY, BenchSet, encoder_folder, weights_file
from sebra_bench.facts import facts
from sebra_bench.plan import parse_specs
from sebra_bench.rows import ROWS, Row, Rows, read_rows
from sebra_bench.seeds import seeded

PLAIN = "erm"


@dataclass(frozen=True)
class CarryOptions:
    """What is run on every set. methods: of debias, with settings in brackets; or references.

    weights: of pictures, None for those of the benchmark data.
    """

    methods: tuple[str, ...] = (PLAIN, "auto")
    seeds: int = 3
    mode: str = "features"
    device: str = "auto"
    weights: str | None = None

    def runs(self, chosen: BenchSet, groups: bool) -> list[tuple[str, int]]:
        """Method and seed of every run on a set; what can be had is computed once over features."""
        wanted = dict.fromkeys((PLAIN, *self.methods))
        if groups and chosen.kind != ORDINARY:
            wanted[TRUE_GROUPS] = None
        seeds = range(self.seeds)
        once = self.mode == "features"
        return [(m, s) for m in wanted for s in (seeds if m not in REFERENCES or not once else [0])]


class _Kept:
    """The rows of a file; of two of the same run the later one counts."""

    def __init__(self, file: Path) -> None:
        self._file = Rows(file)
        rows = read_rows(file) if file.is_file() else []
        self.found = {_key(row): row for row in rows}

    def has(self, data: str, method: str, seed: int, mode: str) -> bool:
        """Whether the run is there; one that failed is to be tried again."""
        row = self.found.get((data, method, seed, mode))
        return row is not None and "error" not in row

    def add(self, row: Row) -> None:
        self.found[_key(row)] = self._file.add(row)


def _key(row: Row) -> tuple[str, str, int, str]:
    return row["data"], row["method"], int(row["seed"]), row["mode"]


def carryover(
    sets: Sequence[BenchSet],
    options: CarryOptions,
    folder: Path,
    progress: ProgressSink | None = None,
) -> list[Row]:
    """The rows of all runs: those that are in the folder, and the others after running them."""
    rows = _Kept(folder / ROWS)
    shown: ProgressSink = progress or Silent()
    for chosen in sets:
        _run_set(chosen, options, rows, shown)
    names = {s.name for s in sets}
    return [row for row in rows.found.values() if row["data"] in names]


def _run_set(chosen: BenchSet, options: CarryOptions, rows: _Kept, progress: ProgressSink) -> None:
    def missing(groups: bool) -> list[tuple[str, int]]:
        asked = options.runs(chosen, groups)
        return [run for run in asked if not rows.has(chosen.name, *run, options.mode)]

    if not missing(groups=True):
        return
    try:
        data = chosen.make()
        bench = _Bench(chosen, data, options, progress)
    except SebraError as error:
        progress.message(f"{chosen.name}: left out ({error})")
        return
    for method, seed in missing(groups=bench.has_groups):
        progress.message(f"{chosen.name}: {method}, seed {seed}")
        rows.add(bench.row(method, seed))
        gc.collect()


class _Bench:
    """One set, read once, and what is measured on it."""

    def __init__(
        self, chosen: BenchSet, data: str, options: CarryOptions, progress: ProgressSink
    ) -> None:
        self.chosen, self.options, self.progress = chosen, options, progress
        self.meter = Meter()
        self.prepared = seeded(self._prepare(data), 0)
        seeded(self.prepared.enlarged(), 0)  # read before the clocks of runs start
        self.meter.result()
        samples = self.prepared.samples
        self.has_groups = bool(samples.attributes) and bool(
            all((a.codes[samples.rows("train")] >= 0).any() for a in samples.attributes.values())
        )
        planted = Path(data).parent
        self.telling = load(planted).telling if (planted / FACTS).is_file() else None

    def _prepare(self, data: str) -> Prepared:
        from sebra.samples.open import open_samples

        samples = open_samples(data, self.chosen.attributes)
        weights = None
        if samples.kind == "image" and self.chosen.pretrained:
            weights = self.options.weights or weights_file()
        mode = "auto" if samples.kind == "features" else self.options.mode
        backbone = encoder_folder() if samples.kind == "text" else None
        source = Source(data, 0, self.options.device, mode, backbone, weights)
        return prepare(source, Session(progress=self.progress), self.meter, samples)

    def row(self, method: str, seed: int) -> Row:
        prepared = seeded(self.prepared, seed)
        base = {
            "data": self.chosen.name,
            "kind": self.chosen.kind,
            "role": self.chosen.role,
            "method": method,
            "seed": seed,
            "mode": self.options.mode,
            "version": __version__,
            **facts(prepared.device),
        }
        meter, began = Meter(), time.perf_counter()
        try:
            found = self._measured(prepared, method, seed, meter)
        except SebraError as error:
            found = {"error": str(error)}
        finally:
            meter.result()
        reading = {name: round(s, 3) for name, s in self.meter.seconds.items()}
        seconds = {**meter.seconds, "run": time.perf_counter() - began}
        base["seconds"] = {name: round(s, 3) for name, s in seconds.items()}
        return {**base, "reading_seconds": reading, **found}

    def _measured(self, prepared: Prepared, method: str, seed: int, meter: Meter) -> Row:
        if method in REFERENCES and prepared.mode == "features":
            reference = logistic(prepared, seed, balanced=method == TRUE_GROUPS)
            return {
                "evaluation": self._scores(reference.probabilities),
                "selection": reference.selection,
                "ece": self._ece(reference.probabilities),
            }
        session = Session(progress=Silent())
        if method == LOGISTIC:
            raise SebraError("logistic: is a reference over frozen features (--mode features)")
        if method == TRUE_GROUPS:
            run = even_draws(prepared, session, meter)
        else:
            (spec,) = parse_specs(method)
            asked = DebiasOptions(spec.name, overrides=spec.overrides)
            run = debias_prepared(prepared, asked, session, meter)
        found: Row = {
            "evaluation": _kept(run.metrics["evaluation"]),
            "selection": run.metrics["selection"],
            "notes": run.metrics.get("notes", []),
            "ece": self._ece(_probabilities(run)),
        }
        if "plain" in run.metrics:
            found["plain"] = _kept(run.metrics["plain"])
        if "choice" in run.metrics:
            found["choice"] = run.metrics["choice"]
        if method != TRUE_GROUPS:
            found["finding"] = finding(run.ranking, prepared.samples, self.telling)
        return found

    def _scores(self, probabilities: Any) -> Row:
        samples = self.prepared.samples
        found = score(samples, samples.rows("test"), probabilities.argmax(axis=1))
        return _kept(found.to_dict())

    def _ece(self, probabilities: Any) -> float:
        samples = self.prepared.samples
        labels = samples.labels[samples.rows("test")]
        return calibration_error(probabilities, labels, id_weights(samples))


def _kept(evaluation: Row) -> Row:
    """The figures without those of every class and group."""
    return {k: v for k, v in evaluation.items() if k not in ("groups", "per_class")}


def _probabilities(run: DebiasRun) -> Any:
    """Of the test samples, by the trained part alone where the features are there already."""
    network, task = run.network, run.prepared.task("test")
    with evaluating(network):
        out = predict(network, task, torch.arange(len(task), device=task.device))
    return out.softmax(1).cpu().numpy().astype(np.float64)
