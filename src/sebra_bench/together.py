"""Several runs of a benchmark at a time, each in a process of its own, as memory allows.

The processes leave rows on disk and nothing else; whoever asked reads the rows afterwards. A run
that needs a ranking waits until the ranking is there, so that it is made once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from sebra.debiasing.registry import method_class
from sebra.engine.session import ProgressSink, Silent
from sebra.errors import Interrupted, SebraError
from sebra.runs.folder import RunFolder
from sebra.workflows.prepared import Source
from sebra_bench.baselines.held_out import HeldOut
from sebra_bench.plan import BenchOptions
from sebra_bench.rows import Row
from sebra_bench.runs import Job, Plan
from sebra_bench.workbench import Workbench

_MEMORY = Path("/proc/meminfo")
Failed = dict[Job, SebraError]


@dataclass(frozen=True)
class _Order:
    """A run with the place of its data set among those of the benchmark."""

    place: int
    job: Job


def run_together(
    benches: Sequence[Workbench],
    plans: Sequence[Plan],
    progress: ProgressSink | None = None,
    until: float | None = None,
) -> list[Failed]:
    """Makes every missing row; returns, per data set, the runs that the data does not allow.

    until: when it ends, by the monotonic clock; runs that are not finished then are returned, too.
    """
    orders = [
        _Order(place, job)
        for place, (bench, plan) in enumerate(zip(benches, plans, strict=True))
        for job in plan.jobs(bench.options.seeds)
        if job.find(bench) is None
    ]
    if benches[0].options.protocol is not None:
        orders = by_importance(orders, plans)
    failed: list[Failed] = [{} for _ in benches]
    if orders:
        _Pool(benches, failed, progress or Silent(), until).run(orders)
    return failed


def by_importance(orders: Sequence[_Order], plans: Sequence[Plan]) -> list[_Order]:
    """Method by method as they were named, each on all data sets and seeds.

    Seeds of a method wait for its choice of a setting, so the next method fills the gap. A ranking
    comes with the first method that needs it: a slow one would hold up all others.
    """

    def key(order: _Order) -> tuple[int, int, bool, int]:
        job, models = order.job, plans[order.place].models
        if job.method is None:
            users = [i for i, (_, ranker) in enumerate(models) if ranker == job.ranker]
            return min(users, default=len(models)), job.seed, False, order.place
        return models.index((job.method, job.ranker)), job.seed, True, order.place

    return sorted(orders, key=key)


def families(orders: Sequence[_Order]) -> list[list[_Order]]:
    """Runs that begin with the same training follow each other in one process, which keeps it."""
    found: dict[tuple[object, ...], list[_Order]] = {}
    for order in orders:
        job = order.job
        kind = None if job.method is None else method_class(job.method.name)
        if kind is not None and issubclass(kind, HeldOut):
            found.setdefault((order.place, job.seed), []).append(order)
        else:
            found[order.place, job] = [order]
    return list(found.values())


class _Pool:
    def __init__(
        self,
        benches: Sequence[Workbench],
        failed: list[Failed],
        progress: ProgressSink,
        until: float | None,
    ) -> None:
        self.benches, self.failed, self.progress, self.until = benches, failed, progress, until
        options = benches[0].options
        self.most, self.protocol = options.jobs, options.protocol is not None
        # One until the first run has shown what a run needs; with a deadline there is no time.
        self.allowed = 1 if until is None else self.most
        self.running: dict[Future[list[Row | SebraError]], list[_Order]] = {}

    def run(self, orders: Sequence[_Order]) -> None:
        pending = list(orders)
        pool = ProcessPoolExecutor(
            self.most,
            multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(max(1, (os.cpu_count() or 1) // self.most),),
        )
        try:
            while pending or self.running:
                for family in families(self._ready(pending))[: self.allowed - len(self.running)]:
                    pending = [order for order in pending if order not in family]
                    self.running[self._submit(pool, family)] = family
                done = wait(self.running, self._seconds_left(), FIRST_COMPLETED).done
                for future in done:
                    for order, row in zip(self.running.pop(future), future.result(), strict=True):
                        self._finish(order, row)
                if not done:
                    self._stop(pool, [*chain(*self.running.values()), *pending])
                    return
        except (KeyboardInterrupt, Interrupted) as stop:
            for child in multiprocessing.active_children():
                child.terminate()
            by = stop.args[1] if isinstance(stop, Interrupted) else signal.SIGINT
            said = (
                f"interrupted; finished rows stay in {self._where()}: the same command with the "
                "same --out continues"
            )
            raise Interrupted(said, by) from None
        except BrokenProcessPool:
            raise SebraError(
                "--jobs: a process of the benchmark ended by itself (out of memory?); finished "
                f"rows stay in {self._where()}: start again with fewer jobs"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _seconds_left(self) -> float | None:
        return None if self.until is None else max(0.0, self.until - time.monotonic())

    def _stop(self, pool: ProcessPoolExecutor, unfinished: Sequence[_Order]) -> None:
        """The time is up: what runs is ended, what is finished stays."""
        self.progress.message(f"--deadline: {len(unfinished)} runs are left for another time")
        for order in unfinished:
            left = SebraError("not run yet: the time was up; start again with the same --out")
            self.failed[order.place][order.job] = left
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.kill()  # some are in the middle of a kernel and would take their time

    def _where(self) -> Path:
        return self.benches[0].folder.path

    def _ready(self, pending: Sequence[_Order]) -> list[_Order]:
        """Runs whose ranking, or whose setting, is not still to be made or chosen."""
        awaited = {*pending, *chain(*self.running.values())}
        return [
            order
            for order in pending
            if not any(_Order(order.place, b) in awaited for b in order.job.before(self.protocol))
        ]

    def _submit(
        self, pool: ProcessPoolExecutor, orders: Sequence[_Order]
    ) -> Future[list[Row | SebraError]]:
        bench = self.benches[orders[0].place]
        jobs = [order.job for order in orders]
        self.progress.message(f"{bench.name}: {', '.join(job.name for job in jobs)} begins")
        source = bench.prepared.source
        return pool.submit(_work, source, bench.options, bench.folder.path, jobs)

    def _finish(self, order: _Order, found: Row | SebraError) -> None:
        name = f"{self.benches[order.place].name}: {order.job.name}"
        if isinstance(found, SebraError):
            self.failed[order.place][order.job] = found
            return
        self.progress.message(f"{name} done in {found['seconds']['total']:.1f} s")
        if self.allowed < self.most:
            self._widen(found)

    def _widen(self, row: Row) -> None:
        """As many at a time as fit beside those that run, by what a run has needed."""
        others = max(1, len(self.running))
        spare = [
            int(free // max(1.0, row[key]))
            for key, free in free_mib(self.benches[0].prepared.device).items()
            if key in row
        ]
        allowed = min([self.most, *(others + n for n in spare)])
        if allowed < self.most and allowed > self.allowed:
            self.progress.message(
                f"{allowed} runs at a time instead of {self.most}: a run takes "
                f"{row['peak_memory_mib']:.0f} MiB and no more of them fit into memory"
            )
        self.allowed = max(self.allowed, allowed)


def free_mib(device: Any) -> dict[str, float]:
    """Free memory by the name that rows give to what a run needed of it."""
    out: dict[str, float] = {}
    try:
        for line in _MEMORY.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                out["peak_memory_mib"] = int(line.split()[1]) / 1024
    except OSError:
        pass
    if device.type == "cuda":
        import torch

        out["peak_gpu_memory_mib"] = torch.cuda.mem_get_info(device)[0] / 2**20
    return out


# In the processes --------------------------------------------------------------------------------

_open: dict[str, Workbench] = {}


def _begin(threads: int) -> None:
    """Ends with the process that asked; an interrupt is taken by the run, if there is one."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.join,), daemon=True).start()


def _end_with(ended: Callable[[], object]) -> None:
    ended()
    os._exit(1)


def _work(
    source: Source, options: BenchOptions, folder: Path, jobs: Sequence[Job]
) -> list[Row | SebraError]:
    """Runs one after the other; the data set stays open for the next run on it."""
    if source.data not in _open:
        if options.deadline is None:  # memory before time
            _open.clear()
        _open[source.data] = Workbench(source, options, RunFolder(folder))
    found: list[Row | SebraError] = []
    for job in jobs:
        try:
            found.append(job.run(_open[source.data]))
        except SebraError as error:
            found.append(error)
    return found
