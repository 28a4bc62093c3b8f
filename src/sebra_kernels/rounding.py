"""A network of convolutions in eight bits: what goes into them and their weights are rounded.

Channels of an input are scaled before they are rounded, so that loud ones leave levels to quiet
ones, and their weights the other way (SmoothQuant, arXiv 2211.10438). What rounding shifts an
output by in the mean is taken off again (Nagel et al., arXiv 1906.04721).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

Array = npt.NDArray[np.float32]
Run = Callable[[Array], Any]  # an OpenVINO model, compiled: its outputs by number

_EXACT = (2, 6)  # convolutions left as they are: an error at the start goes through all layers
_ROOM = 1.5  # above the largest value seen: to cut costs more than coarser levels
_QUIET = 1e-3  # the least scale of a channel, as a share of the largest
_STEP = 8  # samples at a time


@dataclass
class _Given:
    """What goes into a convolution: the largest values per channel, and some of it."""

    most: Array
    signed: bool
    some: Tensor


def rounded(model: Any, seen: Tensor, compiled: Callable[[Any], Run]) -> Iterator[Any]:
    """Copies of an OpenVINO model in eight bits, each more exact and slower than the one before.

    seen: inputs to find ranges from. Nothing of a network that is not mainly convolutions.
    """
    kinds = [op.get_type_name() for op in model.get_ordered_ops()]
    if kinds.count("Convolution") <= kinds.count("GroupConvolution") + kinds.count("MatMul"):
        return
    given = _observed(model, seen, compiled)
    for exact in _EXACT:
        copy = model.clone()
        for conv, known in list(zip(_convolutions(copy), given, strict=True))[exact:]:
            _round(conv, known)
        copy.validate_nodes_and_infer_types()
        yield copy


def _convolutions(model: Any) -> list[Any]:
    found = (op for op in model.get_ordered_ops() if op.get_type_name() == "Convolution")
    return [op for op in found if op.input_value(1).get_node().get_type_name() == "Constant"]


def _observed(model: Any, seen: Tensor, compiled: Callable[[Any], Run]) -> list[_Given]:
    watched = model.clone()
    for conv in _convolutions(watched):
        watched.add_outputs(conv.input_value(0))
    run = compiled(watched)
    places = {_name(result.input_value(0)): i for i, result in enumerate(watched.get_results())}
    wanted = [places[_name(conv.input_value(0))] for conv in _convolutions(watched)]
    steps, given = max(1, len(seen) // _STEP), list[_Given]()
    for i in range(steps):
        found = run(seen[i::steps].contiguous().numpy())
        for k, x in enumerate([found[place] for place in wanted]):
            most = np.abs(x).max((0, 2, 3))
            if i == 0:
                given.append(_Given(most, False, torch.from_numpy(x)))
            given[k].most = np.maximum(given[k].most, most)
            given[k].signed |= bool(x.min() < 0)
    return given


def _name(output: Any) -> tuple[str, int]:
    return output.get_node().get_friendly_name(), output.get_index()


def _round(conv: Any, known: _Given) -> None:
    from openvino import opset13 as ops

    weight: Array = np.array(conv.input_value(1).get_node().data, np.float32)
    most = np.maximum(known.most, np.finfo(np.float32).tiny)
    scale = np.sqrt(most / np.maximum(np.abs(weight).max((0, 2, 3)), _QUIET**2))
    scale = np.maximum(scale, scale.max() * _QUIET).reshape(1, -1, 1, 1)
    top = (most / scale.ravel()).max() * _ROOM
    heavy = weight * scale
    widest = np.maximum(np.abs(heavy).max((1, 2, 3), keepdims=True), np.finfo(np.float32).tiny)
    levels = 127 if known.signed else 255
    low = -1.0 if known.signed else 0.0

    grid = torch.from_numpy(scale * top / levels)
    x = (known.some / grid).round().clamp(low * levels, levels) * grid
    w = torch.from_numpy(np.round(heavy / widest * 127) * widest / 127 / scale)
    at = conv.get_attributes()
    place = {"stride": at["strides"], "padding": at["pads_begin"], "dilation": at["dilations"]}
    shift = F.conv2d(x, w, **place) - F.conv2d(known.some, torch.from_numpy(weight), **place)

    def constant(values: Any) -> Any:
        return ops.constant(np.asarray(values, np.float32))

    def on_levels(source: Any, width: Any, out: Any, least: float, count: int) -> Any:
        ends = (width * least, width, out * least, out)
        return ops.fake_quantize(source, *map(constant, ends), count).output(0)

    users = list(conv.output(0).get_target_inputs())
    mean = shift.mean((0, 2, 3)).view(1, -1, 1, 1).numpy()
    right = ops.subtract(conv, constant(mean)).output(0)
    for user in users:
        user.replace_source_output(right)
    count = 255 if known.signed else 256
    conv.input(0).replace_source_output(
        on_levels(conv.input_value(0), scale * top, top, low, count)
    )
    conv.input(1).replace_source_output(on_levels(constant(heavy), widest, widest, -1.0, 255))
