"""What joint batch norm, shortcut and ReLU kernels gain in training, on the GPU at hand.

    PYTHONPATH=src python3 benchmarks/norm_speed.py

Prints how long compiling took, the kernels' bytes per second beside torch's own at the shapes of a
ResNet-50, and images per second of whole bodies (forward and backward, bfloat16, in a CUDA graph).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sebra.engine import fusing

BATCH, SIDE = 128, 160
SHAPES = (
    (128, 64, 80, 80),
    (128, 64, 40, 40),
    (128, 256, 40, 40),
    (128, 512, 20, 20),
    (128, 128, 20, 20),
    (128, 1024, 10, 10),
    (128, 2048, 5, 5),
)


KERNELS = ("moments", "finish_moments", "apply", "grad_sums", "finish_grads", "grad_input")


def captured(step: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """`step` as a CUDA graph, after three plain ones on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def seconds(run: Callable[[], Any], repeats: int = 5, inner: int = 5) -> float:
    """The median time of one `run`."""
    run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(inner):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / inner)
    return statistics.median(times)


def body_of(name: str) -> nn.Module:
    try:
        import timm

        made: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    except ImportError:
        import torchvision

        made = getattr(torchvision.models, name)()
        made.fc = nn.Identity()
    return made.cuda().to(memory_format=torch.channels_last).train()


def images_per_second(body: nn.Module, function: Callable[[Tensor], Tensor]) -> float:
    x = torch.randn(BATCH, 3, SIDE, SIDE, device="cuda").to(memory_format=torch.channels_last)

    def step() -> None:
        for parameter in body.parameters():
            parameter.grad = None
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = function(x).float().square().mean()
        loss.backward()

    return BATCH / seconds(captured(step).replay)


def layer(shape: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Map, shortcut, weight, bias; running mean and variance; the gradient of the result."""
    maps = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    x, z, grad = (m.to(memory_format=torch.channels_last) for m in maps)
    weight, bias = torch.ones(shape[1], device="cuda"), torch.zeros(shape[1], device="cuda")
    leaves = [t.requires_grad_() for t in (x, z, weight, bias)]
    return leaves, [bias.detach().clone(), weight.detach().clone()], grad


def plain(leaves: list[Tensor], running: list[Tensor], adds: bool) -> Tensor:
    x, z, weight, bias = leaves
    out = F.batch_norm(x, running[0], running[1], weight, bias, True, 0.1, 1e-5)
    if adds:
        out += z
    return out.relu_()


def fused(leaves: list[Tensor], running: list[Tensor], adds: bool) -> Tensor:
    from sebra_kernels.norm_relu import norm_relu

    x, z, weight, bias = leaves
    return norm_relu(x, weight, bias, running[0], running[1], 0.1, 1e-5, z if adds else None)


def layer_seconds(how: Callable[..., Tensor], shape: tuple[int, ...], adds: bool) -> list[float]:
    """Forward, and forward with backward."""
    leaves, running, grad = layer(shape)
    wanted = leaves if adds else [leaves[0], *leaves[2:]]

    def both() -> None:
        torch.autograd.grad(how(leaves, running, adds), wanted, grad)

    def forward() -> None:
        with torch.no_grad():
            how(leaves, running, adds)

    return [seconds(captured(run).replay) for run in (forward, both)]


def kernel_seconds(shape: tuple[int, ...], adds: bool) -> dict[str, float]:
    """Time per kernel of one forward and backward, as the profiler sees it."""
    leaves, running, grad = layer(shape)
    wanted = leaves if adds else [leaves[0], *leaves[2:]]
    steps = 5
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            torch.autograd.grad(fused(leaves, running, adds), wanted, grad)
        torch.cuda.synchronize()
    found = {}
    for event in profile.key_averages():
        spent = getattr(event, "self_device_time_total", 0) or 0
        if event.key in KERNELS:
            found[event.key] = float(spent) / 1e6 / steps
    return found


def show_kernels() -> None:
    print("\nkernel by kernel: microseconds (TB/s)")
    maps = {"moments": (1, 1), "apply": (2, 3), "grad_sums": (2, 4), "grad_input": (3, 3)}
    for shape in SHAPES:
        size = torch.Size(shape).numel() * 2
        for adds in (False, True):
            cells = []
            for name, spent in kernel_seconds(shape, adds).items():
                moved = size * maps[name][adds] if name in maps else 0
                rate = f" ({moved / spent / 1e12:.2f})" if moved and spent else ""
                cells.append(f"{name} {spent * 1e6:.1f}{rate}")
            print(f"{shape!s:>20} {'shortcut' if adds else '':8} " + ", ".join(cells))


def show_layers() -> None:
    print("\nlayer by layer: microseconds of the forward pass, and of forward and backward")
    for shape in SHAPES:
        for adds in (False, True):
            old, new = layer_seconds(plain, shape, adds), layer_seconds(fused, shape, adds)
            cells = [f"{a * 1e6:7.1f} → {b * 1e6:6.1f}" for a, b in zip(old, new, strict=True)]
            print(f"{shape!s:>20} {'shortcut' if adds else '':8} " + ", ".join(cells))


def show_bodies() -> None:
    print(f"\nimages per second, batch {BATCH}, {SIDE} pixels")
    for name in ("resnet18", "resnet50"):
        body = body_of(name)
        start = time.perf_counter()
        copied = fusing.training_copy(body, torch.device("cuda"))
        traced = time.perf_counter() - start
        assert copied is not None, f"{name} has no training copy"
        old, new = images_per_second(body, body), images_per_second(body, copied)
        print(f"{name}: {old:.0f} → {new:.0f} ({new / old:.2f} times; traced in {traced:.2f} s)")


def main() -> None:
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    start = time.perf_counter()
    if not fusing.available():
        # Again, but without the guard: the error says why.
        print(fusing._error(torch.device("cuda"), True))
        raise SystemExit("the kernels do not work here")
    print(f"compiled and checked in {time.perf_counter() - start:.1f} s")
    show_bodies()
    show_layers()
    show_kernels()


if __name__ == "__main__":
    main()
