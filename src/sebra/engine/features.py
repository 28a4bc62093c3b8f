"""Features mode: the backbone runs once over the content, heads train on what it gave."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.engine import distributed, networks
from sebra.engine.engines import NAMES, ROUNDED, TORCH, Run, quickest, torch_run
from sebra.engine.networks import NetworkSpec
from sebra.engine.passes import batches_of
from sebra.engine.patches import PROBES, VERSION, Basis, View
from sebra.engine.text_network import Pooled, fill_features
from sebra.engine.weights import Weights
from sebra.loading.cache import Entry, user_cache
from sebra.loading.inputs import Inputs
from sebra.loading.texts import ROWS
from sebra.samples.table import FeatureArray

log = logging.getLogger(__name__)

FORMAT_VERSION = 3  # raise it when the same images and weights would give other features
_BASIS, _WIDTH = "basis", "width"
_BATCH = {"cpu": 32, "cuda": 512}
_WORTH = 256  # samples: for fewer an engine takes longer to start than it saves
_COMPARED, _FITTED = 16, 64  # the latter by an engine that is fitted to the half of them
_FITS = 32 * _FITTED  # samples: fitting takes a quarter of the time in which torch computes these
_MOMENT_ROWS = 65_536

Progress = Callable[[int, int], None]
Key = list[str | int | bytes]


@dataclass(frozen=True)
class Features:
    """What was extracted: penultimate features and, of some networks of pictures, patch features.

    all: the penultimate features and the finer cells that last layers see. basis: how they were
    made.
    """

    all: FeatureArray
    pooled: FeatureArray
    patches: FeatureArray | None = None
    basis: Basis | None = None


class Frozen:
    """A network and what computes it, chosen over the content it is given first, for all content.

    inputs: that content. key: identifies it. look: whether to make patch features as well.
    """

    def __init__(
        self, spec: NetworkSpec, weights: Weights | None, inputs: Inputs, key: str, look: bool
    ) -> None:
        self.spec, self.weights, self.inputs, self.key, self.look = spec, weights, inputs, key, look
        self.basis: Basis | None = None
        fits = len(inputs.shape) == 3 and len(inputs) >= _FITS
        self.names = NAMES if fits else tuple(name for name in NAMES if name != ROUNDED)

    def features(self, inputs: Inputs, key: str, progress: Progress | None = None) -> Features:
        """What the network makes of every row of `inputs`, from the cache if it is there.

        `key` identifies the images or tokens; backbone, weights, input size and the engine that
        computes the features, with what it was fitted to, are added to it.
        """
        digest = self.weights.digest if self.weights else "scratch"
        place = (str(inputs.shape), self.spec.seen, inputs.device.type)
        parts: Key = [FORMAT_VERSION, key, self.spec.backbone, digest, *place]
        if self.look:
            parts += ["patches", VERSION, self.basis.to_text() if self.basis else ""]
        with distributed.main_first():
            known = partial(user_cache().known, "features", fits=partial(_parts, rows=len(inputs)))
            found = ((n, known([*parts, *self._key_of(n)])) for n in self.names)
            name, entry = next((pair for pair in found if pair[1]), ("", None))
            if entry is None:
                name, entry = self._engine[0], self._made(parts, inputs, progress)
        if name not in self.names:
            log.warning("%s computes what %s began: the latter is missing", name, self.names[0])
        array, meta = entry
        self.names = (name,)
        width, basis = _parts(array, meta, len(inputs))
        self.basis = self.basis or basis
        rows, first = np.arange(len(inputs), dtype=np.int64), basis.ranked if basis else 0
        columns = slice(first, None), slice(first, first + width), slice(first)
        every, pooled, ranked = (FeatureArray(array[:, some], rows) for some in columns)
        return Features(every, pooled, ranked if basis else None, basis)

    def _key_of(self, engine: str) -> Key:
        return [engine, self.key] if engine == ROUNDED else [engine]

    @cached_property
    def _network(self) -> networks.Network:
        return networks.build(self.spec, 0, self.weights).to(self.inputs.device).eval()

    @cached_property
    def _module(self) -> Pooled | View:
        if self._network.is_text:
            return Pooled(self._network.body)
        view = View(self._network)
        if self.look:
            view.look(self.inputs.batch(_spread(self.inputs, 1)))
        return view

    @cached_property
    def _engine(self) -> tuple[str, Run]:
        if len(self.inputs) < _WORTH:
            return TORCH, torch_run(self._module)
        compared = _FITTED if ROUNDED in self.names else _COMPARED
        probe, free = self.inputs.batch(_spread(self.inputs, compared)), [0]
        if self._network.is_text:
            probe, free = probe[:, :ROWS], [0, 2]
        return quickest(self._module, probe, self._module.parts, free, self.names)

    def _made(self, parts: Key, inputs: Inputs, progress: Progress | None) -> Entry:
        (name, run), module = self._engine, self._module
        fill: Callable[[npt.NDArray[Any], Run], dict[str, Any]]
        if isinstance(module, View):
            columns = module.columns(self.basis, len(inputs))
            fill = partial(_fill, view=module, basis=self.basis, inputs=inputs, progress=progress)
        else:
            columns, fill = (
                self._network.width,
                partial(fill_features, inputs=inputs, progress=progress),
            )
        kept = {"backbone": self.spec.backbone, _WIDTH: self._network.width}
        return user_cache().array(
            "features",
            [*parts, *self._key_of(name)],
            (len(inputs), columns),
            np.float16,
            lambda out: kept | fill(out, run),
            partial(_parts, rows=len(inputs)),
        )


def _parts(array: npt.NDArray[Any], meta: dict[str, Any], rows: int) -> tuple[int, Basis | None]:
    """How many columns are penultimate features, and what the others were made by, if any."""
    width, basis = int(meta[_WIDTH]), Basis.from_text(meta[_BASIS]) if _BASIS in meta else None
    shape = (rows, width + (basis.ranked + basis.finest if basis else 0))
    if array.shape != shape or array.dtype != np.float16 or width < 1:
        raise ValueError(f"it has shape {array.shape} and type {array.dtype}, not {shape}")
    return width, basis


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
        out[probes.cpu().numpy()] = _halved(basis.to(inputs.device)(*view.parts(seen)))
        rows = rows[~torch.isin(rows, probes)]
    made = basis.to(inputs.device)
    _fill_rows(out, rows, lambda x: made(*view.parts(run(x))), inputs, progress)
    return {_BASIS: basis.to_text()}


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
