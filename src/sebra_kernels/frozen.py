"""OpenVINO, which computes frozen networks on a CPU, where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

_TRACED = 2  # samples; another number in the check shows whether the trace holds on to it


def precisions() -> tuple[str, ...]:
    """What this machine can compute in, the quickest first; nothing without OpenVINO."""
    if find_spec("openvino") is None:
        return ()
    import openvino

    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ("bf16", "f32") if "BF16" in able else ("f32",)


def compiled(
    module: nn.Module, probe: Tensor, precision: str, free: Sequence[int]
) -> Callable[[Tensor], Tensor]:
    """`module` for inputs like `probe`, of any length in the dimensions `free`."""
    import openvino
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a trace fixes: `quickest` compares the results
        trace: Any = torch.jit.trace
        traced = trace(module, probe[:_TRACED], check_trace=False)
        decoder = TorchScriptPythonDecoder(traced)
    # Not by openvino.convert_model, which reports to its makers.
    front_end: Any = FrontEndManager().load_by_framework("pytorch")
    model = front_end.convert(front_end.load(decoder))
    shape = [-1 if i in free else length for i, length in enumerate(probe.shape)]
    model.reshape(openvino.PartialShape(shape))
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "ENABLE_CPU_PINNING": False,  # other processes may be bound to the same cores
    }
    compiled: Any = openvino.Core().compile_model(model, "CPU", settings)
    return lambda x: torch.from_numpy(compiled(x.contiguous().numpy())[0])
