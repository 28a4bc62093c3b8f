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

from sebra.engine import distributed, networks
from sebra.engine.engines import NAMES, TORCH, Run, quickest, torch_run
from sebra.engine.networks import NetworkSpec
from sebra.engine.passes import batches_of
from sebra.engine.patches import PROBES, VERSION, Basis, View
from sebra.engine.weights import Weights
from sebra.loading.cache import Entry, user_cache
from sebra.loading.inputs import Inputs
from sebra.loading.texts import ROWS
from sebra.samples.table import FeatureArray

FORMAT_VERSION = 2  # raise it when the same images and weights would give other features
_BASIS, _WIDTH = "basis", "width"
_BATCH = {"cpu": 32, "cuda": 512}
_WORTH = 256  # samples: for fewer an engine takes longer to start than it saves
_COMPARED = 16
_MOMENT_ROWS = 65_536

Progress = Callable[[int, int], None]
Key = list[str | int | bytes]


@dataclass(frozen=True)
class Features:
    """What was extracted: penultimate features and, of some networks of pictures, patch features.

    all: both side by side. basis: how the patch features were made.
    """

    all: FeatureArray
    pooled: FeatureArray
    patches: FeatureArray | None = None
    basis: Basis | None = None


def extract_features(
    spec: NetworkSpec,
    weights: Weights | None,
    inputs: Inputs,
    key: str,
    progress: Progress | None = None,
    look: bool | Basis = False,
) -> Features:
    """What the network of `spec` makes of every row of `inputs`, from the cache if it is there.

    `key` identifies the images or tokens; backbone, weights, input size and the engine that
    computes the features are added to it.
    look: whether to make patch features as well, or the basis to make them with.
    """
    parts: Key = [
        FORMAT_VERSION,
        key,
        spec.backbone,
        weights.digest if weights else "scratch",
        str(inputs.shape),
        inputs.device.type,
    ]
    if look:
        parts += ["patches", VERSION, look.to_text() if isinstance(look, Basis) else ""]
    with distributed.main_first():
        known = partial(user_cache().known, "features", fits=partial(_parts, rows=len(inputs)))
        found = filter(None, (known([*parts, name]) for name in NAMES))
        array, meta = next(found, None) or _made(parts, spec, weights, inputs, progress, look)
    width, basis = _parts(array, meta, len(inputs))
    rows = np.arange(len(inputs), dtype=np.int64)
    every, pooled = FeatureArray(array, rows), FeatureArray(array[:, :width], rows)
    if basis is None:
        return Features(every, pooled)
    return Features(every, pooled, FeatureArray(array[:, width:], rows), basis)


def _parts(array: npt.NDArray[Any], meta: dict[str, Any], rows: int) -> tuple[int, Basis | None]:
    """How many columns are penultimate features, and what the others were made by."""
    width, basis = int(meta[_WIDTH]), Basis.from_text(meta[_BASIS]) if _BASIS in meta else None
    shape = (rows, width + (basis.width if basis else 0))
    if array.shape != shape or array.dtype != np.float16 or width < 1:
        raise ValueError(f"it has shape {array.shape} and type {array.dtype}, not {shape}")
    return width, basis


def _made(
    parts: Key,
    spec: NetworkSpec,
    weights: Weights | None,
    inputs: Inputs,
    progress: Progress | None,
    look: bool | Basis,
) -> Entry:
    network = networks.build(spec, 0, weights).to(inputs.device).eval()
    probe = inputs.batch(_spread(inputs, _COMPARED))
    fill: Callable[[npt.NDArray[Any], Run], dict[str, Any]]
    if network.is_text:
        from sebra.engine.text_network import Pooled, fill_features

        module: Pooled | View = Pooled(network.body)
        probe, more, free = probe[:, :ROWS], 0, [0, 2]
        fill = partial(fill_features, inputs=inputs, progress=progress)
    else:
        module, basis = View(network), look if isinstance(look, Basis) else None
        if look:
            module.look(probe[:1])
        more, free = module.width_after(basis, len(inputs)), [0]
        fill = partial(_fill, view=module, basis=basis, inputs=inputs, progress=progress)
    engine, run = TORCH, torch_run(module)
    if len(inputs) >= _WORTH:
        engine, run = quickest(module, probe, module.parts, free)
    kept = {"backbone": spec.backbone, _WIDTH: network.width}
    return user_cache().array(
        "features",
        [*parts, engine],
        (len(inputs), network.width + more),
        np.float16,
        lambda out: kept | fill(out, run),
        partial(_parts, rows=len(inputs)),
    )


def _fill(
    out: npt.NDArray[Any],
    run: Run,
    view: View,
    basis: Basis | None,
    inputs: Inputs,
    progress: Progress | None,
) -> dict[str, Any]:
    rows = torch.arange(len(inputs), device=inputs.device)
    if not view.has_cells:
        _fill_rows(out, rows, run, inputs, progress)
        return {}
    if basis is None:
        probes = _spread(inputs, PROBES)
        batches = torch.split(probes, _BATCH[inputs.device.type])
        seen = torch.cat([run(inputs.batch(part)) for part in batches])
        basis = Basis.of(*view.parts(seen))
        out[probes.cpu().numpy()] = _halved(_patched(seen, view, basis.to(inputs.device)))
        rows = rows[~torch.isin(rows, probes)]
    made = basis.to(inputs.device)
    _fill_rows(out, rows, lambda x: _patched(run(x), view, made), inputs, progress)
    return {_BASIS: basis.to_text()}


def _patched(seen: Tensor, view: View, basis: Basis) -> Tensor:
    z, cells = view.parts(seen)
    return torch.cat([z, basis(z, cells)], dim=1)


def _fill_rows(
    out: npt.NDArray[Any], rows: Tensor, run: Run, inputs: Inputs, progress: Progress | None
) -> None:
    if len(rows) == 0:
        return
    batch = min(_BATCH[inputs.device.type], len(rows))
    where, done = rows.cpu().numpy(), 0
    for x in inputs.read(batches_of(rows, batch)):
        stop = min(done + batch, len(rows))
        out[where[done:stop]] = _halved(run(x)[: stop - done])
        done = stop
        if progress is not None:
            progress(done + len(inputs) - len(rows), len(inputs))


def _halved(z: Tensor) -> npt.NDArray[Any]:
    largest = float(torch.finfo(torch.float16).max)
    return z.clamp(-largest, largest).half().cpu().numpy()


def _spread(inputs: Inputs, most: int) -> Tensor:
    """Evenly spaced rows."""
    rows = np.linspace(0, len(inputs) - 1, min(most, len(inputs))).round().astype(np.int64)
    return torch.from_numpy(rows).to(inputs.device)


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
