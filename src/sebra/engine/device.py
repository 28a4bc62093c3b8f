"""Which device, how many threads, which precision."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import threading
from contextlib import AbstractContextManager
from typing import Any

import torch

from sebra.engine import distributed
from sebra.engine.copies import training_copy
from sebra.errors import UsageError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of mallopt's parameters in malloc.h
_LARGEST_KEPT = 256 * 2**20
_LATER = ("scipy.optimize", "scipy.stats", "pandas")
_started: list[threading.Thread] = []
_ready = threading.Event()


def choose_device(name: str = "auto") -> torch.device:
    """`auto`, `cpu` or `cuda` to a device; asks for a GPU only where there is one.

    Under a launcher of several processes it is this process's own, and the processes are joined.
    """
    shared = distributed.start(name) if name in ("auto", "cpu", "cuda") else None
    if shared is not None and name in ("auto", shared.type):
        return shared
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise UsageError(f"--device: {name!r} is not one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: no CUDA GPU is visible here; use --device cpu or auto")
    return torch.device(name)


def setup(device: torch.device) -> None:
    """Threads and matrix precision for a run on `device`."""
    if device.type == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(max(1, cores or 1))
    else:
        torch.set_float32_matmul_precision("high")
        # Its guesses are as quick as what seconds of trials would find.
        torch.backends.cudnn.benchmark = False
        if not _started:
            _started.append(threading.Thread(target=_make_ready, args=(device,), daemon=True))
            _started[0].start()


def _make_ready(device: torch.device) -> None:
    """Loads libraries for the GPU, and compiled kernels, while the data is being read.

    Then what every command loads later: nobody waits for it while the GPU works.
    """
    with contextlib.suppress(RuntimeError):  # what is wrong here will be so for who waits as well
        x = torch.ones(2, 8, 8, 8, device=device, dtype=torch.bfloat16)
        torch.nn.functional.conv2d(x, x).flatten() @ x.flatten()[:4]
        training_copy(torch.nn.Identity(), device)
        torch.cuda.synchronize(device)
    _ready.set()
    for name in _LATER:
        importlib.import_module(name)


def wait_until_ready() -> None:
    """Until nothing but this thread uses the GPU: a graph cannot be captured before."""
    if _started:
        _ready.wait()


def reuse_memory() -> None:
    """Keeps freed memory for the next batch, where the C library can (glibc).

    It would return large blocks at once, and fetching and clearing them again for every layer
    costs a third of a pass over images.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_KEPT)


def autocast(device: torch.device) -> AbstractContextManager[Any]:
    """bf16 on CUDA (without weight cache, so that graphs can be captured), float32 on a CPU."""
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()
