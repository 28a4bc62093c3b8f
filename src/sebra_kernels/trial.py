"""Run by itself: says how quickly this machine computes a convolution in each precision.

A process of its own, since there are virtual machines that name instructions they do not have; to
use one ends the process.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import openvino
from openvino import opset13 as ops

_REPEATS = 5


def seconds(precision: str) -> float:
    """Of the quickest of a few convolutions, as large as those in the middle of a network."""
    x = ops.parameter([8, 128, 20, 20], np.float32)
    out, rounds = x, precision == "int8"
    for _ in range(3):
        weights = ops.constant(np.ones((128, 128, 3, 3), np.float32))
        if rounds:
            out, weights = on_levels(out, 0.0), on_levels(weights, -1.0)
        out = ops.relu(ops.convolution(out, weights, [1, 1], [1, 1], [1, 1], [1, 1]))
    hint = "f32" if rounds else precision
    settings = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1}
    model = openvino.Core().compile_model(openvino.Model([out], [x]), "CPU", settings)
    given, spent = np.ones((8, 128, 20, 20), np.float32), []
    for _ in range(_REPEATS):
        start = time.process_time()
        model(given)
        spent.append(time.process_time() - start)
    return min(spent)


def on_levels(source: openvino.Node, low: float) -> openvino.Node:
    """Rounded to what fits into eight bits."""
    ends = [ops.constant(np.float32(end)) for end in (low, 1.0, low, 1.0)]
    return ops.fake_quantize(source, *ends, 256 if low == 0.0 else 255)


if __name__ == "__main__":
    named = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    for name in ("f32", "int8", *(["bf16"] if "BF16" in named else [])):
        sys.stdout.write(f"{name} {seconds(name)}\n")
        sys.stdout.flush()  # the next may end the process
