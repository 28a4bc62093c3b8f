"""Batch norm, shortcut and ReLU of a training step in as few passes over memory as they need.

Triton kernels over channels_last maps, seen as rows (n x h x w) of channels; `norm_relu.py`
launches them. Importing this file fails where Triton is missing. Nothing waits for the device, and
the order of every sum is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.language import constexpr, tensor

TILE = constexpr(64)  # rows that a program holds at a time
_SHORT = constexpr(32)  # the same of `grad_sums`, which holds more of each
BLOCK = constexpr(64)  # channels of a program: in bfloat16, one line of the cache
NARROW = constexpr(8)  # channels of a program that joins partial results
SPLITS = constexpr(512)  # most partial results of a channel; they are joined in one go


def _kernel(function: Callable[..., Any]) -> Any:
    """Compiled once for all sizes of a map, apart from whether 16 divides the channels."""
    return triton.jit(function, do_not_specialize=["rows", "splits"])


@_kernel
def _place(width: tensor, tile: constexpr) -> tuple[tensor, ...]:
    """Which rows a program works on, which channels, and the offsets inside of a tile."""
    blocks = tl.cdiv(width, BLOCK)
    cols = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = tl.arange(0, tile)[:, None] * width + cols[None, :]
    return (tl.program_id(0) // blocks).to(tl.int64), cols, inside


@_kernel
def _welford(
    mean: tensor, spread: tensor, x: tensor, keep: tensor, number: tensor
) -> tuple[tensor, ...]:
    """Mean and sum of squared deviations with the `number`-th value of every lane."""
    delta = tl.where(keep, x.to(tl.float32) - mean, 0.0)
    mean += delta * (1.0 / number)
    return mean, spread + delta * (x.to(tl.float32) - mean)


@_kernel
def moments(xs: tensor, parts: tensor, rows: tensor, width: tensor, splits: tensor) -> None:
    """Mean and squared deviations of every `splits`-th tile.

    Tiles are counted from the last row: what was written last is still in the cache.
    """
    split, cols, inside = _place(width, TILE)
    fits = cols < width
    lanes = tl.arange(0, TILE)
    mean = tl.zeros([TILE, BLOCK], tl.float32)
    spread = tl.zeros([TILE, BLOCK], tl.float32)
    for step in range(0, tl.cdiv(tl.cdiv(rows, TILE) - split.to(tl.int32), splits), 2):
        row = rows - (split + 1 + step * splits) * TILE
        next_row = row - splits * TILE
        keep = (row + lanes >= 0)[:, None] & fits[None, :]
        next_keep = (next_row + lanes >= 0)[:, None] & fits[None, :]
        x = tl.load(xs + row * width + inside, mask=keep, other=0.0)
        next_x = tl.load(xs + next_row * width + inside, mask=next_keep, other=0.0)
        mean, spread = _welford(mean, spread, x, keep, step + 1)
        mean, spread = _welford(mean, spread, next_x, next_keep, step + 2)
    count = (((rows + lanes) // TILE - split + splits - 1) // splits).to(tl.float32)[:, None]
    centre = tl.sum(mean * (count / tl.sum(count)), 0)
    apart = mean - centre[None, :]
    tl.store(parts + split * width + cols, centre, mask=fits)
    spreads = tl.sum(spread + count * apart * apart, 0)
    tl.store(parts + (splits + split) * width + cols, spreads, mask=fits)


@_kernel
def finish_moments(
    parts: tensor,
    stats: tensor,
    weights: tensor,
    biases: tensor,
    running_means: tensor,
    running_vars: tensor,
    rows: tensor,
    width: tensor,
    splits: tensor,
    momentum: tensor,
    eps: tensor,
) -> None:
    """Joins the partial moments into mean, 1 / deviation, scale and shift of every channel."""
    cols = tl.program_id(0) * NARROW + tl.arange(0, NARROW)
    fits = cols < width
    split = tl.arange(0, SPLITS)
    keep = (split < splits)[:, None] & fits[None, :]
    at = split[:, None] * width + cols[None, :]
    means = tl.load(parts + at, mask=keep, other=0.0)
    spreads = tl.load(parts + splits * width + at, mask=keep, other=0.0)
    tiles = tl.cdiv(rows, TILE)
    count = (tiles - split + splits - 1) // splits * TILE
    count -= tl.where((tiles - 1) % splits == split, tiles * TILE - rows, 0)  # the last is partial
    share = tl.where(split < splits, count.to(tl.float32) / rows, 0.0)[:, None]
    mean = tl.sum(means * share, 0)
    apart = means - mean[None, :]
    spread = tl.sum(spreads + share * rows * apart * apart, 0)
    rstd = 1.0 / tl.sqrt(spread / rows + eps)
    scale = tl.load(weights + cols, mask=fits, other=0.0).to(tl.float32) * rstd
    bias = tl.load(biases + cols, mask=fits, other=0.0).to(tl.float32)
    tl.store(stats + cols, mean, mask=fits)
    tl.store(stats + width + cols, rstd, mask=fits)
    tl.store(stats + 2 * width + cols, scale, mask=fits)
    tl.store(stats + 3 * width + cols, bias - mean * scale, mask=fits)
    old = tl.load(running_means + cols, mask=fits, other=0.0).to(tl.float32)
    tl.store(running_means + cols, old + momentum * (mean - old), mask=fits)
    old = tl.load(running_vars + cols, mask=fits, other=0.0).to(tl.float32)
    tl.store(running_vars + cols, old + momentum * (spread / (rows - 1) - old), mask=fits)


@_kernel
def apply(
    xs: tensor,
    shortcuts: tensor,
    ys: tensor,
    stats: tensor,
    rows: tensor,
    width: tensor,
    adds: constexpr,
) -> None:
    tile, cols, inside = _place(width, TILE)
    fits = cols < width
    keep = (tile * TILE + tl.arange(0, TILE) < rows)[:, None] & fits[None, :]
    at = tile * TILE * width + inside
    x = tl.load(xs + at, mask=keep, other=0.0).to(tl.float32)
    scale = tl.load(stats + 2 * width + cols, mask=fits, other=0.0)
    shift = tl.load(stats + 3 * width + cols, mask=fits, other=0.0)
    y = x * scale[None, :] + shift[None, :]
    if adds:
        y += tl.load(shortcuts + at, mask=keep, other=0.0).to(tl.float32)
    y = tl.where(y <= 0.0, 0.0, y)  # not a maximum, which would hide what is not a number
    tl.store(ys + at, y, mask=keep)


@_kernel
def _before_relu(
    grad: tensor, x: tensor, y: tensor, scale: tensor, shift: tensor, adds: constexpr
) -> tensor:
    if not adds:  # nothing but `x` had to be kept, then
        y = x.to(tl.float32) * scale[None, :] + shift[None, :]
    return tl.where(y <= 0.0, 0.0, grad.to(tl.float32))


@_kernel
def grad_sums(
    grads: tensor,
    xs: tensor,
    ys: tensor,
    masked: tensor,
    stats: tensor,
    parts: tensor,
    rows: tensor,
    width: tensor,
    splits: tensor,
    adds: constexpr,
) -> None:
    """Sums of the gradient before the ReLU, and of it times the normalised input.

    With a shortcut that gradient is written too: it is also the shortcut's.
    """
    split, cols, inside = _place(width, _SHORT)
    fits = cols < width
    lanes = tl.arange(0, _SHORT)
    mean = tl.load(stats + cols, mask=fits, other=0.0)
    scale = tl.load(stats + 2 * width + cols, mask=fits, other=0.0)
    shift = tl.load(stats + 3 * width + cols, mask=fits, other=0.0)
    total = tl.zeros([_SHORT, BLOCK], tl.float32)
    along = tl.zeros([_SHORT, BLOCK], tl.float32)
    for step in range(0, tl.cdiv(tl.cdiv(rows, _SHORT) - split.to(tl.int32), splits), 2):
        row = rows - (split + 1 + step * splits) * _SHORT
        keep = (row + lanes >= 0)[:, None] & fits[None, :]
        next_keep = (row - splits * _SHORT + lanes >= 0)[:, None] & fits[None, :]
        at = row * width + inside
        next_at = (row - splits * _SHORT) * width + inside
        x = tl.load(xs + at, mask=keep, other=0.0)
        next_x = tl.load(xs + next_at, mask=next_keep, other=0.0)
        grad = tl.load(grads + at, mask=keep, other=0.0)
        next_grad = tl.load(grads + next_at, mask=next_keep, other=0.0)
        y, next_y = x, next_x
        if adds:
            y = tl.load(ys + at, mask=keep, other=0.0)
            next_y = tl.load(ys + next_at, mask=next_keep, other=0.0)
        grad = _before_relu(grad, x, y, scale, shift, adds)
        total += grad
        along += grad * (x.to(tl.float32) - mean[None, :])
        next_grad = _before_relu(next_grad, next_x, next_y, scale, shift, adds)
        total += next_grad
        along += next_grad * (next_x.to(tl.float32) - mean[None, :])
        if adds:
            tl.store(masked + at, grad, mask=keep)
            tl.store(masked + next_at, next_grad, mask=next_keep)
    rstd = tl.load(stats + width + cols, mask=fits, other=0.0)
    tl.store(parts + split * width + cols, tl.sum(total, 0), mask=fits)
    tl.store(parts + (splits + split) * width + cols, tl.sum(along, 0) * rstd, mask=fits)


@_kernel
def finish_grads(
    parts: tensor,
    stats: tensor,
    grad_weights: tensor,
    grad_biases: tensor,
    rows: tensor,
    width: tensor,
    splits: tensor,
) -> None:
    """Joins the partial sums into the gradients of weight and bias and what `grad_input` reads."""
    cols = tl.program_id(0) * NARROW + tl.arange(0, NARROW)
    fits = cols < width
    split = tl.arange(0, SPLITS)
    keep = (split < splits)[:, None] & fits[None, :]
    at = split[:, None] * width + cols[None, :]
    total = tl.sum(tl.load(parts + at, mask=keep, other=0.0), 0)
    along = tl.sum(tl.load(parts + splits * width + at, mask=keep, other=0.0), 0)
    rstd = tl.load(stats + width + cols, mask=fits, other=0.0)
    scale = tl.load(stats + 2 * width + cols, mask=fits, other=0.0)
    tl.store(grad_weights + cols, along, mask=fits)
    tl.store(grad_biases + cols, total, mask=fits)
    tl.store(stats + 4 * width + cols, -scale * rstd * (along / rows), mask=fits)
    tl.store(stats + 5 * width + cols, -scale * (total / rows), mask=fits)


@_kernel
def grad_input(
    grads: tensor,
    xs: tensor,
    outs: tensor,
    stats: tensor,
    rows: tensor,
    width: tensor,
    adds: constexpr,
) -> None:
    """scale (g - mean g - x̂ mean(g x̂)); with a shortcut, `grads` are before the ReLU already."""
    tile, cols, inside = _place(width, TILE)
    fits = cols < width
    keep = (tile * TILE + tl.arange(0, TILE) < rows)[:, None] & fits[None, :]
    at = tile * TILE * width + inside
    grad = tl.load(grads + at, mask=keep, other=0.0).to(tl.float32)
    x = tl.load(xs + at, mask=keep, other=0.0).to(tl.float32)
    mean = tl.load(stats + cols, mask=fits, other=0.0)
    scale = tl.load(stats + 2 * width + cols, mask=fits, other=0.0)
    slope = tl.load(stats + 4 * width + cols, mask=fits, other=0.0)
    level = tl.load(stats + 5 * width + cols, mask=fits, other=0.0)
    if not adds:
        shift = tl.load(stats + 3 * width + cols, mask=fits, other=0.0)
        grad = _before_relu(grad, x, x, scale, shift, adds)
    out = grad * scale[None, :] + (x - mean[None, :]) * slope[None, :] + level[None, :]
    tl.store(outs + at, out, mask=keep)
