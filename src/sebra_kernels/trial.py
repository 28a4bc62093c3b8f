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
    out = x
    for _ in range(3):
        weights = ops.constant(np.ones((128, 128, 3, 3), np.float32))
        out = ops.relu(ops.convolution(out, weights, [1, 1], [1, 1], [1, 1], [1, 1]))
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1}
    model = openvino.Core().compile_model(openvino.Model([out], [x]), "CPU", settings)
    given, spent = np.ones((8, 128, 20, 20), np.float32), []
    for _ in range(_REPEATS):
        start = time.process_time()
        model(given)
        spent.append(time.process_time() - start)
    return min(spent)


if __name__ == "__main__":
    for name in ("f32", "bf16"):
        sys.stdout.write(f"{name} {seconds(name)}\n")
        sys.stdout.flush()  # the next may end the process
