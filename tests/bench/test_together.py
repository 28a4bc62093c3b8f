"""Several runs at a time: every row is made once, and the tables are those of one at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import miniatures
from sebra.errors import UsageError
from sebra.runs.folder import RunFolder
from sebra.workflows.prepared import Source
from sebra_bench import together
from sebra_bench.bench import bench
from sebra_bench.plan import BenchOptions, Spec, parse_specs
from sebra_bench.rows import read_rows
from sebra_bench.runs import Job, Plan

QUICK = ("epochs=2", "rank.epochs=2")


def options(jobs, methods="erm,sebra,dfr"):
    return BenchOptions(parse_specs(methods), 2, None, QUICK, min_group=1, jobs=jobs)


@pytest.fixture
def sources(tmp_path):
    one = miniatures.npz(tmp_path / "one.npz")
    other = miniatures.npz(tmp_path / "other.npz", X=miniatures.features(seed=5)["X"])
    return [Source(str(path), device="cpu") for path in (one, other)]


def figures(run: Path) -> dict[str, object]:
    """What rows say without how long they took and where."""
    parts = ("evaluation", "selection", "ranking", "identity")
    return {
        " ".join(str(row.get(k)) for k in ("kind", "data", "method", "seed")): {
            k: row.get(k) for k in parts
        }
        for row in read_rows(run / "rows.jsonl")
    }


def test_rows_and_reasons_are_those_of_one_run_at_a_time(sources, tmp_path):
    runs = {
        jobs: bench(sources, options(jobs), RunFolder.create(str(tmp_path / f"run{jobs}"), "bench"))
        for jobs in (1, 2)
    }
    assert figures(tmp_path / "run2") == figures(tmp_path / "run1")
    assert len(figures(tmp_path / "run2")) == 2 * 2 * 3  # two data sets, seeds; dfr has no rows
    shown = [[table.shown for table in run.tables] for run in runs.values()]
    assert shown[0] == shown[1]
    assert any("dfr: 2 of the training groups are empty" in r for r in runs[2].tables[0].remarks)
    assert all(row["runs_together"] == 2 for row in read_rows(tmp_path / "run2" / "rows.jsonl"))


def test_a_run_waits_for_its_ranking():
    ranking, sebra = Spec("sebra", "sebra"), Spec("sebra", "sebra")
    pool = together._Pool.__new__(together._Pool)
    pool.protocol = False
    first = together._Order(0, Job(None, ranking, 0))
    model = together._Order(0, Job(sebra, ranking, 0))
    elsewhere = together._Order(1, Job(sebra, ranking, 0))
    plain = together._Order(0, Job(Spec("erm", "erm"), None, 0))
    pool.running = {}
    assert pool._ready([first, model, plain, elsewhere]) == [first, plain, elsewhere]
    pool.running = {object(): [first]}
    assert pool._ready([model, plain]) == [plain]
    pool.running = {}
    assert pool._ready([model, plain]) == [model, plain]


def test_under_the_protocol_a_seed_waits_for_the_choice_of_a_setting():
    erm = Spec("erm", "erm")
    pool = together._Pool.__new__(together._Pool)
    pool.protocol, pool.running = True, {}
    zero, one = (together._Order(0, Job(erm, None, seed)) for seed in (0, 1))
    assert pool._ready([one, zero]) == [zero]
    assert pool._ready([one]) == [one]


def test_runs_of_the_protocol_go_by_importance_on_all_data_sets():
    a, b, ranker = (Spec(n, n) for n in ("erm", "sebra", "peel"))
    plan = Plan(((a, None), (b, ranker)), (ranker,))
    orders = [together._Order(p, job) for p in (0, 1) for job in plan.jobs(2)]
    found = [(o.job.name, o.place) for o in together.by_importance(orders, [plan, plan])]
    assert [n for n, _ in found[:4]] == ["erm seed 0"] * 2 + ["erm seed 1"] * 2
    for seed in (0, 1):  # a ranking comes with the first method that needs it
        names = [n for n, _ in found[4 + 4 * seed : 8 + 4 * seed]]
        assert names == [f"ranking peel seed {seed}"] * 2 + [f"sebra on peel seed {seed}"] * 2


def test_runs_that_begin_with_the_same_training_share_a_process():
    orders = [
        together._Order(place, Job(Spec(name, name), None, seed))
        for place in (0, 1)
        for name in ("afr", "erm", "dpe")
        for seed in (0, 1)
    ]
    found = [
        [(o.job.method.name, o.place, o.job.seed) for o in f] for f in together.families(orders)
    ]
    assert [("afr", 0, 0), ("dpe", 0, 0)] in found
    assert [("afr", 1, 1), ("dpe", 1, 1)] in found
    assert [("erm", 0, 0)] in found
    assert sum(map(len, found)) == len(orders)


def test_at_the_deadline_it_ends_and_goes_on_another_time(sources, tmp_path):
    late = replace(options(1, "erm"), deadline=0.01)
    folder = RunFolder.create(str(tmp_path / "run"), "bench")
    run = bench(sources, late, folder)
    assert any("erm: not run yet: the time was up" in r for r in run.tables[0].remarks)
    assert not (tmp_path / "run" / "rows.jsonl").exists()
    run = bench(sources, options(1, "erm"), folder)
    assert len(read_rows(tmp_path / "run" / "rows.jsonl")) == 4
    with pytest.raises(UsageError, match="--deadline: 0 is not"):
        replace(late, deadline=0.0)


@pytest.mark.parametrize(("free", "expected"), [(10_000, 4), (350, 3), (99, 1)])
def test_no_more_runs_at_a_time_than_fit_into_memory(monkeypatch, free, expected):
    said = []

    class Bench:
        class prepared:
            device = None

    pool = together._Pool.__new__(together._Pool)
    pool.benches, pool.most, pool.allowed, pool.running = [Bench], 4, 1, {object(): None}
    pool.progress = type("Sink", (), {"message": staticmethod(said.append)})
    monkeypatch.setattr(together, "free_mib", lambda device: {"peak_memory_mib": float(free)})
    pool._widen({"peak_memory_mib": 150.0})
    assert pool.allowed == expected
    assert bool(said) == (expected == 3)


def test_the_machine_tells_its_free_memory():
    import torch

    if not together._MEMORY.is_file():
        pytest.skip("no /proc/meminfo here")
    assert together.free_mib(torch.device("cpu"))["peak_memory_mib"] > 1


def test_fewer_than_one_job_is_refused():
    with pytest.raises(UsageError, match="--jobs: 0 is not a number from 1"):
        options(0)
