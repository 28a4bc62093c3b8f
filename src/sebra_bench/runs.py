"""Which runs a benchmark has, and their rows gathered into one entry per method or ranker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sebra.debiasing.registry import method_class
from sebra.errors import SebraError
from sebra.ranking.registry import ranker_class
from sebra.runs.config import parse_overrides
from sebra_bench.layouts import layout_of
from sebra_bench.plan import (
    OWN_RANKER,
    BenchOptions,
    Spec,
    with_shared,
)
from sebra_bench.results import Results
from sebra_bench.rows import Row
from sebra_bench.summary import Entry
from sebra_bench.workbench import Workbench, model_label

_USES_GROUPS = frozenset({"groups", "heldout_groups"})


@dataclass(frozen=True)
class Job:
    """One run: a method on its ranker (`method` given), or a ranking of its own."""

    method: Spec | None
    ranker: Spec | None
    seed: int

    @property
    def name(self) -> str:
        if self.method is None:
            assert self.ranker is not None
            return f"ranking {self.ranker.label} seed {self.seed}"
        return f"{model_label(self.method, self.ranker)} seed {self.seed}"

    def before(self, protocol: bool) -> list[Job]:
        """What must be there first: the ranking, and under the protocol the choice of a setting."""
        if self.method is None:
            return []
        ranking = [] if self.ranker is None else [Job(None, self.ranker, self.seed)]
        choice = [replace(self, seed=0)] if protocol and self.seed else []
        return [*ranking, *choice]

    def find(self, bench: Workbench) -> Row | None:
        """The finished row, if there is one."""
        if self.method is not None:
            return bench.find_model(self.method, self.seed, self.ranker)
        assert self.ranker is not None
        return bench.find_ranking(self.ranker, self.seed)

    def run(self, bench: Workbench) -> Row:
        """The finished row, or that of a run made now."""
        if self.method is not None:
            return bench.model(self.method, self.seed, self.ranker)
        assert self.ranker is not None
        return bench.ranking(self.ranker, self.seed)


@dataclass(frozen=True)
class Plan:
    """What runs on one data set: methods with their rankers, and rankers of their own."""

    models: tuple[tuple[Spec, Spec | None], ...]
    rankers: tuple[Spec, ...]

    def jobs(self, seeds: int) -> Iterator[Job]:
        """Seed by seed, so that a stopped benchmark has every method once before any twice."""
        for seed in range(seeds):
            for ranker in self.rankers:
                yield Job(None, ranker, seed)
            for spec, chosen in self.models:
                yield Job(spec, chosen, seed)


def check_settings(options: BenchOptions) -> None:
    """Refuses unknown methods, rankers and settings before anything is read."""
    for spec in _methods(options):
        parse_overrides(method_class(spec.name).config_class, spec.overrides)
    for spec in _rankers(options):
        parse_overrides(ranker_class(spec.name).config_class, spec.overrides)


def _methods(options: BenchOptions) -> tuple[Spec, ...]:
    return with_shared(options.methods, options.method_overrides, method_class)


def own_ranker(method: Spec) -> str:
    """The ranker that a method takes where none is asked for."""
    kind = method_class(method.name)
    made = kind(kind.config_class(**parse_overrides(kind.config_class, method.overrides)))
    return made.ranker


def _rankers(options: BenchOptions) -> tuple[Spec, ...]:
    """The rankers asked for, else those the methods take by themselves."""
    own = dict.fromkeys([OWN_RANKER, *(own_ranker(m) for m in _methods(options))])
    specs = options.rankers or tuple(Spec(name, name) for name in own)
    return with_shared(specs, options.ranker_overrides, ranker_class)


def plan_runs(bench: Workbench) -> Plan:
    """Every method, once on each ranker asked for where it needs a ranking."""
    rankers = _rankers(bench.options)
    models: list[tuple[Spec, Spec | None]] = []
    for spec in _methods(bench.options):
        if "ranking" not in bench.needs(spec):
            models.append((spec, None))
        elif bench.options.rankers:
            models += [(spec, ranker) for ranker in rankers]
        else:
            models.append((spec, next(r for r in rankers if r.name == own_ranker(spec))))
    used = [r for r in rankers if any(r == ranker for _, ranker in models)]
    return Plan(tuple(models), rankers if bench.options.rankers else tuple(used))


def check_rows(bench: Workbench, plan: Plan) -> None:
    """Refuses rows of other settings or data before the first run starts."""
    jobs = list(plan.jobs(bench.options.seeds))
    for job in sorted(jobs, key=lambda job: job.method is None):  # a model's row says more
        job.find(bench)


def run_plan(
    bench: Workbench, plan: Plan, failed: Mapping[Job, SebraError] | None = None
) -> Results:
    """Runs what has no row yet; `failed` are runs that were tried and cannot be had."""
    rankings = {r: Entry(r.label) for r in plan.rankers}
    models = {
        (spec, ranker): Entry(
            model_label(spec, ranker), uses_groups=bool(bench.needs(spec) & _USES_GROUPS)
        )
        for spec, ranker in plan.models
    }
    for job in plan.jobs(bench.options.seeds):
        if job.method is None:
            assert job.ranker is not None
            entry = rankings[job.ranker]
        else:
            entry = models[job.method, job.ranker]
        _run_into(entry, bench, job, failed or {})
    data = bench.prepared.source.data
    kind = bench.options.protocol
    name = bench.name if kind is None else f"{bench.name}, {kind}"
    return Results(name, layout_of(data), list(models.values()), list(rankings.values()))


def _run_into(entry: Entry, bench: Workbench, job: Job, failed: Mapping[Job, SebraError]) -> None:
    """Adds a run to its entry; one that this data does not allow leaves its reason there."""
    if entry.reason and not entry.rows:
        return  # what this data lacks for one seed it lacks for all
    try:
        if job in failed:
            raise failed[job]
        entry.rows.append(job.run(bench))
    except SebraError as error:
        why = re.sub(r"^--method \w+: ", "", str(error))
        entry.reason = f"seed {job.seed}: {why}" if entry.rows else why
        bench.progress.message(f"{entry.label} left out: {entry.reason}")
