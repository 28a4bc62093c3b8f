"""Features mode: the backbone runs once over the content, heads train on what it gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
from sebra.engine.patches import VERSION, Basis, Tap, probe_of, tap_of, width_of
from sebra.loading.cache import cached_array
from sebra.loading.inputs import Inputs
from sebra.samples.table import FeatureArray

FORMAT_VERSION = 1  # raise it when the same images and weights would give other features
_BASIS = "basis"
_BATCH = {"cpu": 64, "cuda": 512}
_MOMENT_ROWS = 65_536

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Features:
    """What was extracted: penultimate features and, of some networks of pictures, patch features.

    basis: how the patch features were made.
    """

    pooled: FeatureArray
    patches: FeatureArray | None = None
    basis: Basis | None = None


def extract_features(
    network: Network,
    weights: Weights | None,
    inputs: Inputs,
    key: str,
    progress: Progress | None = None,
    look: bool | tuple[str, Basis] = False,
) -> Features:
    """The features of every row of `inputs`, from the cache where they are there.

    `key` identifies the images or tokens; backbone, weights and input size are added to it.
    look: whether to make patch features as well, or the basis to make them with and its own key.
    """
    parts: list[str | int | bytes] = [
        FORMAT_VERSION,
        key,
        network.spec.backbone,
        weights.digest if weights else "scratch",
        str(inputs.shape),
        inputs.device.type,
    ]
    tap = tap_of(network, inputs) if look else None
    more = 0
    fill: Callable[..., dict[str, Any]] = _fill
    if tap is not None:
        theirs, basis = look if isinstance(look, tuple) else ("", None)
        parts += ["patches", VERSION, theirs]
        more = width_of(tap, inputs) if basis is None else basis.width
        fill = partial(_fill_both, tap=tap, basis=basis)
    elif network.is_text:
        from sebra.engine.text_network import fill_features

        fill = fill_features
    shape = (len(inputs), network.width + more)
    with distributed.main_first():
        array, meta = cached_array(
            "features", parts, shape, np.float16, lambda out: fill(out, network, inputs, progress)
        )
    rows = np.arange(len(inputs), dtype=np.int64)
    if tap is None:
        return Features(FeatureArray(array, rows))
    return Features(
        FeatureArray(array[:, : network.width], rows),
        FeatureArray(array[:, network.width :], rows),
        Basis.from_text(meta[_BASIS]),
    )


def _fill(
    out: npt.NDArray[Any], network: Network, inputs: Inputs, progress: Progress | None
) -> dict[str, Any]:
    rows = torch.arange(len(inputs), device=inputs.device)
    _fill_rows(out, rows, _body(network, inputs), inputs, progress)
    return {"backbone": network.spec.backbone}


def _fill_both(
    out: npt.NDArray[Any],
    network: Network,
    inputs: Inputs,
    progress: Progress | None,
    tap: Tap,
    basis: Basis | None,
) -> dict[str, Any]:
    rows = torch.arange(len(inputs), device=inputs.device)
    if basis is None:
        if inputs.device.type == "cpu":
            reuse_memory()
        with autocast(inputs.device):
            probe = probe_of(tap, inputs, _BATCH[inputs.device.type])
        basis = probe.basis()
        known = torch.cat([probe.z, basis.to(inputs.device)(probe.z, probe.cells)], dim=1)
        out[probe.rows.cpu().numpy()] = _halved(known)
        rows = rows[~torch.isin(rows, probe.rows)]
    made = basis.to(inputs.device)

    def body(x: Tensor) -> Tensor:
        z, cells = tap(x)
        return torch.cat([z.float(), made(z, cells)], dim=1)

    _fill_rows(out, rows, body, inputs, progress)
    return {"backbone": network.spec.backbone, _BASIS: basis.to_text()}


@torch.no_grad()
def _fill_rows(
    out: npt.NDArray[Any],
    rows: Tensor,
    body: Callable[[Tensor], Tensor],
    inputs: Inputs,
    progress: Progress | None,
) -> None:
    if len(rows) == 0:
        return
    batch = min(_BATCH[inputs.device.type], len(rows))
    if inputs.device.type == "cpu":
        reuse_memory()
    where, done = rows.cpu().numpy(), 0
    for x in inputs.read(batches_of(rows, batch)):
        with autocast(inputs.device):
            z = body(x)
        stop = min(done + batch, len(rows))
        out[where[done:stop]] = _halved(z[: stop - done])
        done = stop
        if progress is not None:
            progress(done + len(inputs) - len(rows), len(inputs))


def _halved(z: Tensor) -> npt.NDArray[Any]:
    largest = float(torch.finfo(torch.float16).max)
    return z.float().clamp(-largest, largest).half().cpu().numpy()


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
