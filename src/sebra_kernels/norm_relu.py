"""ReLU of a batch norm, maybe with a shortcut added between the two, as one differentiable step.

Importing this file fails where Triton is missing; `fusing.available` says whether the kernels work
on the device at hand.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sebra_kernels import norm_kernels as kernels

_PER_PROCESSOR = 4  # programs of a reduction: as many as the registers hold at once
_OPTIONS = {"enable_fp_fusion": True}  # said, since the default differs between versions


def _by_rows(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _parts(total: int, size: Any) -> int:
    return -(-total // int(size.value))


@lru_cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device >= 0 else 2


class NormRelu(torch.autograd.Function):
    """See `norm_relu`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        x, shortcut, weight, bias, running_mean, running_var, momentum, eps = inputs
        x, adds = _by_rows(x), shortcut is not None
        shortcut = _by_rows(shortcut) if adds else x
        width, rows = x.shape[1], x.numel() // x.shape[1]
        blocks, tiles = _parts(width, kernels.BLOCK), _parts(rows, kernels.TILE)
        wanted = max(1, _PER_PROCESSOR * _processors(x.get_device()) // blocks)
        splits = min(wanted, tiles, kernels.SPLITS.value)
        ctx.sizes = rows, width, splits
        ctx.grids = (blocks * splits,), (_parts(width, kernels.NARROW),), (blocks * tiles,)
        y = torch.empty_like(x, memory_format=torch.channels_last)
        parts = weight.new_empty((2, splits, width), dtype=torch.float32)
        stats = weight.new_empty((6, width), dtype=torch.float32)  # two rows are for `backward`
        reduce, finish, spread = ctx.grids
        norm = (weight, bias, running_mean, running_var)
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            kernels.moments[reduce](x, parts, *ctx.sizes, num_warps=8, **_OPTIONS)
            kernels.finish_moments[finish](
                parts, stats, *norm, *ctx.sizes, momentum, eps, **_OPTIONS
            )
            kernels.apply[spread](x, shortcut, y, stats, rows, width, adds, **_OPTIONS)
        ctx.save_for_backward(x, y if adds else None, stats, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, stats, weight = ctx.saved_tensors
        (rows, width, splits), adds, grad = ctx.sizes, y is not None, _by_rows(grad)
        masked = torch.empty_like(grad) if adds else grad
        parts = stats.new_empty((2, splits, width))
        grad_x, grad_weight, grad_bias = (torch.empty_like(t) for t in (x, weight, weight))
        reduce, finish, spread = ctx.grids
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            where = (grad, x, y if adds else x, masked, stats, parts)
            kernels.grad_sums[reduce](*where, *ctx.sizes, adds, num_warps=8, **_OPTIONS)
            kernels.finish_grads[finish](
                parts, stats, grad_weight, grad_bias, *ctx.sizes, **_OPTIONS
            )
            kernels.grad_input[spread](masked, x, grad_x, stats, rows, width, adds, **_OPTIONS)
        shortcut = masked if adds else None
        return grad_x, shortcut, grad_weight, grad_bias, None, None, None, None


def norm_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    shortcut: Tensor | None = None,
) -> Tensor:
    """relu(batch norm of `x` by its own statistics + `shortcut`); the running ones are updated.

    x: n x c x h x w on a GPU, bfloat16, float16 or float32; it, the result and the gradients are
    channels_last. shortcut: of x's shape and dtype.
    """
    if x.numel() <= x.shape[1]:
        raise ValueError(f"a batch norm needs more than one value per channel, got {x.shape}")
    if shortcut is not None and (shortcut.shape != x.shape or shortcut.dtype != x.dtype):
        raise ValueError("the shortcut must have the shape and the dtype of the map it is added to")
    running = (running_mean, running_var)
    out: Tensor = NormRelu.apply(x, shortcut, weight, bias, *running, momentum, eps)
    return out
