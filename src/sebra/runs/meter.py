"""Wall-clock seconds per phase and peak memory of a run."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

_STATUS, _STAT = Path("/proc/self/status"), Path("/proc/self/stat")
_BEGAN = 19  # when the process began, among what stands behind its name
_PERIOD_SECONDS = 0.1


class Meter:
    """Measures a run: `with meter.phase("decode"): …`; memory is sampled in the background.

    A phase inside another one counts for itself alone, so phases add up to what was measured.
    Where `whole_process` is set the next meter counts from the start of the process: what came
    before the meter (the interpreter, libraries) is the phase `start`.
    `peak_memory_mib` is anonymous memory: what the process itself holds, without the pages of
    mapped files, which the system may drop at any time. The sampling ends with `result`, or with
    the meter itself: a run that failed leaves no thread behind.
    """

    whole_process: ClassVar[bool] = False

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = 0.0  # seconds of phases inside the one that runs
        if Meter.whole_process:
            Meter.whole_process = False
            self.seconds["start"] = _process_seconds()
        self._start = time.perf_counter() - self.seconds.get("start", 0.0)
        self._peak = _Peak()
        self._thread = threading.Thread(target=self._peak.watch, daemon=True)
        self._thread.start()
        weakref.finalize(self, self._peak.stop.set)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start, around = time.perf_counter(), self._inside
        self._inside = 0.0
        try:
            yield
        finally:
            took = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inside
            self._inside = around + took

    def so_far(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._start

    def result(self) -> dict[str, Any]:
        """The figures for `metrics.json`; stops the sampling."""
        self._peak.stop.set()
        self._thread.join()
        self._peak.look()
        rounded = {k: round(v, 3) for k, v in {**self.seconds, "total": self.so_far()}.items()}
        out: dict[str, Any] = {"seconds": rounded, "peak_memory_mib": round(self._peak.mib, 1)}
        gpu = _gpu_mib()
        if gpu is not None:
            out["peak_gpu_memory_mib"] = gpu
        return out


class _Peak:
    """What the thread holds; it must not hold the meter, or that would never go."""

    def __init__(self) -> None:
        self.mib = 0.0
        self.stop = threading.Event()

    def look(self) -> None:
        self.mib = max(self.mib, _anonymous_mib())

    def watch(self) -> None:
        while not self.stop.wait(_PERIOD_SECONDS):
            self.look()


def _process_seconds() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):  # Linux has it exact
        ticks = _STAT.read_text(encoding="utf-8").rpartition(")")[2].split()[_BEGAN]
        began = int(ticks) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    import psutil

    return max(0.0, time.time() - float(psutil.Process().create_time()))


def _anonymous_mib() -> float:
    try:
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    import psutil

    return float(psutil.Process().memory_info().rss) / 2**20


def _gpu_mib() -> float | None:
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return round(float(torch.cuda.max_memory_allocated()) / 2**20, 1)
