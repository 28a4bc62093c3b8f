"""Clocks, counters and the machine's own limit, for `sebra bench speed`."""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sebra.errors import UsageError

Work = Callable[[], Any]
REFERENCE = Path("benchmarks") / "reference_loop.py"


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(work: Work, device: torch.device, repeats: int = 3) -> float:
    """Median wall-clock seconds of `work`, after one call that does not count."""
    work()
    found = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def busy_share(work: Work, seconds: float, device: torch.device) -> float | None:
    """Share of `seconds`, the wall time of `work`, in which some kernel runs on the GPU.

    The kernels are timed by the profiler in a run of their own, because it slows launches down.
    """
    if device.type != "cuda":
        return None
    from torch.profiler import ProfilerActivity, profile

    wait(device)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        work()
        wait(device)
    events = recorded.events() or []
    on_device = [e for e in events if str(e.device_type).endswith("CUDA")]
    spans = sorted((e.time_range.start, e.time_range.end) for e in on_device)
    if not spans:
        return None
    busy, reached = 0.0, float("-inf")
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return min(1.0, busy / 1e6 / seconds)


def measured_peak(device: torch.device) -> float:
    """Floating-point operations per second of the best of a large product and a convolution."""
    cuda = device.type == "cuda"
    dtype = torch.bfloat16 if cuda else torch.float32
    side, images = (8192, 128) if cuda else (768, 4)
    a = torch.randn(side, side, device=device, dtype=dtype)
    x = torch.randn(images, 256, 40, 40, device=device, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last)
    conv = nn.Conv2d(256, 256, 3, padding=1, bias=False).to(device, dtype)
    conv = conv.to(memory_format=torch.channels_last)
    loops = 10 if cuda else 1

    def product() -> None:
        for _ in range(loops):
            torch.mm(a, a)

    def convolution() -> None:
        for _ in range(loops):
            conv(x)

    with torch.no_grad():
        by_product = loops * 2 * side**3 / seconds_of(product, device)
        work = 2 * images * 40 * 40 * 256 * 256 * 9
        by_convolution = loops * work / seconds_of(convolution, device)
    return max(by_product, by_convolution)


def flops_per_sample(network: nn.Module, x: Tensor, train: bool) -> float:
    """Operations for one sample of the batch `x`, backward pass included when training."""
    from torch.utils.flop_counter import FlopCounterMode

    was = network.training
    network.eval()  # counting must not touch batch statistics
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
        out = network(x)
        if train:
            out.float().sum().backward()
    network.train(was)
    network.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()) / len(x)


def reset_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_mib(device: torch.device) -> float | None:
    """Largest device memory in use since `reset_memory`; None on a CPU."""
    if device.type != "cuda":
        return None
    return float(torch.cuda.max_memory_allocated(device)) / 2**20


def reference_module(path: str | None) -> Any:
    """The reference loops: the file given, or the one of the checkout this package lies in."""
    checkout = Path(__file__).resolve().parents[3] / REFERENCE
    file = Path(path) if path else REFERENCE if REFERENCE.is_file() else checkout
    if not file.is_file():
        raise UsageError(
            f"--reference: no file {file}; run inside a checkout of Sebra, "
            "or give the path of benchmarks/reference_loop.py"
        )
    spec = importlib.util.spec_from_file_location("sebra_reference_loop", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and loader workers look it up by name
    spec.loader.exec_module(module)
    return module


def fitted_exponent(sizes: list[int], seconds: list[float]) -> float:
    """b of the least-squares fit seconds = a * size^b."""
    import numpy as np

    if len(sizes) < 2:
        return float("nan")
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return float(slope)
