"""Several runs of a benchmark at a time, each in a process of its own, as memory allows.

The processes leave rows on disk and nothing else; whoever asked reads the rows afterwards. A run
that needs a ranking waits until the ranking is there, so that it is made once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sebra.engine.session import ProgressSink, Silent
from sebra.errors import Interrupted, SebraError
from sebra.runs.folder import RunFolder
from sebra.workflows.prepared import Source
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
    benches: Sequence[Workbench], plans: Sequence[Plan], progress: ProgressSink | None = None
) -> list[Failed]:
    """Makes every missing row; returns, per data set, the runs that the data does not allow."""
    orders = [
        _Order(place, job)
        for place, (bench, plan) in enumerate(zip(benches, plans, strict=True))
        for job in plan.jobs(bench.options.seeds)
        if job.find(bench) is None
    ]
    failed: list[Failed] = [{} for _ in benches]
    if orders:
        _Pool(benches, failed, progress or Silent()).run(orders)
    return failed


class _Pool:
    def __init__(
        self, benches: Sequence[Workbench], failed: list[Failed], progress: ProgressSink
    ) -> None:
        self.benches, self.failed, self.progress = benches, failed, progress
        self.most = benches[0].options.jobs
        self.allowed = 1  # until the first run has shown what a run needs
        self.running: dict[Future[Row], _Order] = {}

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
                for order in self._ready(pending)[: self.allowed - len(self.running)]:
                    pending.remove(order)
                    self.running[self._submit(pool, order)] = order
                for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                    self._finish(self.running.pop(future), future)
        except (KeyboardInterrupt, Interrupted) as stop:
            for child in multiprocessing.active_children():
                child.terminate()
            found = stop if isinstance(stop, Interrupted) else Interrupted("")
            raise found.saying(
                f"interrupted; finished rows stay in {self._where()}: the same command with the "
                "same --out goes on from there"
            ) from None
        except BrokenProcessPool:
            raise SebraError(
                "--jobs: a process of the benchmark ended by itself (out of memory?); finished "
                f"rows stay in {self._where()}: start again with fewer jobs"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _where(self) -> Path:
        return self.benches[0].folder.path

    def _ready(self, pending: Sequence[_Order]) -> list[_Order]:
        """Runs whose ranking is not still to be made."""
        awaited = {*pending, *self.running.values()}
        return [
            order
            for order in pending
            if order.job.first is None or _Order(order.place, order.job.first) not in awaited
        ]

    def _submit(self, pool: ProcessPoolExecutor, order: _Order) -> Future[Row]:
        bench = self.benches[order.place]
        self.progress.message(f"{bench.name}: {order.job.name} begins")
        source = bench.prepared.source
        return pool.submit(_work, source, bench.options, bench.folder.path, order.job)

    def _finish(self, order: _Order, future: Future[Row]) -> None:
        name = f"{self.benches[order.place].name}: {order.job.name}"
        try:
            row = future.result()
        except SebraError as error:
            self.failed[order.place][order.job] = error
            return
        self.progress.message(f"{name} done in {row['seconds']['total']:.1f} s")
        if self.allowed < self.most:
            self._widen(row)

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


def _work(source: Source, options: BenchOptions, folder: Path, job: Job) -> Row:
    """One run; the data set stays open for the next run on it."""
    if source.data not in _open:
        _open.clear()
        _open[source.data] = Workbench(source, options, RunFolder(folder))
    return job.run(_open[source.data])
