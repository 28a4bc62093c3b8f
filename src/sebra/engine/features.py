"""Features mode: the backbone runs once over the content, heads train on what it gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.engine import distributed
from sebra.engine.device import autocast, reuse_memory
from sebra.engine.folding import folded_copy
from sebra.engine.networks import Network, Weights
from sebra.engine.passes import batches_of
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
    with distributed.main_first():
        array, _ = cached_array(
            "features", parts, shape, np.float16, lambda out: fill(out, network, inputs, progress)
        )
    return FeatureArray(array, np.arange(len(inputs), dtype=np.int64))


@torch.no_grad()
def _fill(
    out: npt.NDArray[Any], network: Network, inputs: Inputs, progress: Progress | None
) -> dict[str, Any]:
    batch = min(_BATCH[inputs.device.type], len(inputs))
    if inputs.device.type == "cpu":
        reuse_memory()
    largest = float(torch.finfo(torch.float16).max)
    body = _body(network, inputs)
    rows = batches_of(torch.arange(len(inputs), device=inputs.device), batch)
    done = 0
    for x in inputs.read(rows):
        with autocast(inputs.device):
            z = body(x)
        stop = min(done + batch, len(inputs))
        out[done:stop] = z[: stop - done].float().clamp(-largest, largest).half().cpu().numpy()
        done = stop
        if progress is not None:
            progress(done, len(inputs))
    return {"backbone": network.spec.backbone}


def _body(network: Network, inputs: Inputs) -> Callable[[Tensor], Tensor]:
    """Embeds raw images in evaluation mode, by the folded copy where the body has one."""
    network.eval()
    probe = inputs.batch(torch.arange(min(2, len(inputs)), device=inputs.device))
    return folded_copy(network.body, network.shift, network.scale, probe) or network.embed


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
