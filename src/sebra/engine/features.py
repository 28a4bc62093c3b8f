"""Features mode: the backbone runs once over the content, heads train on what it gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sebra.engine.device import autocast
from sebra.engine.networks import Network, Weights
from sebra.loading.cache import cached_array
from sebra.loading.inputs import Inputs
from sebra.samples.table import FeatureArray

FORMAT_VERSION = 1  # raise it when the same images and weights would give other features
_BATCH = {"cpu": 64, "cuda": 512}
_MOMENT_ROWS = 65_536

Progress = Callable[[int, int], None]


def extract_features(
    network: Network,
    weights: Weights | None,
    inputs: Inputs,
    key: str,
    progress: Progress | None = None,
) -> FeatureArray:
    """The penultimate features of every row of `inputs`, from the cache where they are there.

    `key` identifies the images or tokens; backbone, weights and input size are added to it.
    """
    parts: list[str | int | bytes] = [
        FORMAT_VERSION,
        key,
        network.spec.backbone,
        weights.digest if weights else "scratch",
        str(inputs.shape),
        inputs.device.type,
    ]
    shape = (len(inputs), network.width)
    fill = _fill
    if network.is_text:
        from sebra.engine.text_network import fill_features

        fill = fill_features
    array, _ = cached_array(
        "features", parts, shape, np.float16, lambda out: fill(out, network, inputs, progress)
    )
    return FeatureArray(array, np.arange(len(inputs), dtype=np.int64))


@torch.no_grad()
def _fill(
    out: npt.NDArray[Any], network: Network, inputs: Inputs, progress: Progress | None
) -> dict[str, Any]:
    body = fused(network.body)
    batch = _BATCH[inputs.device.type]
    largest = float(torch.finfo(torch.float16).max)
    for start in range(0, len(inputs), batch):
        rows = torch.arange(start, min(start + batch, len(inputs)), device=inputs.device)
        x = inputs.batch(rows).to(network.shift.dtype)
        x = ((x - network.shift) * network.scale).contiguous(memory_format=torch.channels_last)
        with autocast(inputs.device):
            z = body(x)
        out[start : start + len(rows)] = z.float().clamp(-largest, largest).half().cpu().numpy()
        if progress is not None:
            progress(start + len(rows), len(inputs))
    return {"backbone": network.spec.backbone}


def fused(body: nn.Module) -> nn.Module:
    """An evaluation copy, batch norms folded into convolutions where the graph can be traced."""
    body = body.eval()
    try:
        from torch.fx.experimental.optimization import fuse

        folded: nn.Module = fuse(body)
        return folded.to(memory_format=torch.channels_last)
    except Exception:  # tracing fails in many ways; the plain body computes the same
        return body.to(memory_format=torch.channels_last)


def moments(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every feature, in one pass of bounded memory."""
    total = torch.zeros(inputs.shape[0], dtype=torch.float64, device=inputs.device)
    square = torch.zeros_like(total)
    step = max(256, _MOMENT_ROWS * 64 // max(1, inputs.shape[0]))
    for start in range(0, len(inputs), step):
        rows = torch.arange(start, min(start + step, len(inputs)), device=inputs.device)
        x = inputs.batch(rows).double()
        total += x.sum(0)
        square += (x * x).sum(0)
    mean = total / len(inputs)
    var = (square / len(inputs) - mean * mean).clamp_min(0)
    return mean.float(), var.sqrt().float()
