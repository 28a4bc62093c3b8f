"""What computes a frozen network: OpenVINO on a CPU where it is installed, else torch.

OpenVINO joins and lays out layers for the processor at hand and takes bfloat16 where the processor
has it. It is used only where it gives what torch gives.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from sebra.engine.device import autocast, reuse_memory

log = logging.getLogger(__name__)

TORCH = "torch"
NAMES = ("openvino bf16", "openvino f32", TORCH)  # the quickest first
AGREE = 0.999  # cosine of every sample's values and torch's
_TRACED = 2  # samples; another number in the check shows whether the trace holds on to it

Run = Callable[[Tensor], Tensor]
Parts = Callable[[Tensor], Sequence[Tensor]]


@torch.no_grad()
def quickest(
    module: nn.Module, probe: Tensor, parts: Parts, free: Sequence[int] = (0,)
) -> tuple[str, Run]:
    """The quickest engine for `module` that agrees with torch on `probe`: its name and function.

    parts: what of the module's output to compare apart. free: dimensions of the input that may
    have another length than in `probe`.
    """
    module.eval()
    names = _openvino_names() if probe.device.type == "cpu" else ()
    expected = parts(module(probe)) if names else ()
    for name in names:
        try:
            run = _openvino(module, probe, name.split()[1], free)
            least = min(map(_cosine, parts(run(probe)), expected))
            reason = f"cosine {least:.4f}"
        except Exception as error:  # an operation it does not know, a trace that fails
            least, reason = 0.0, (str(error).strip().splitlines() or [type(error).__name__])[-1]
        if least >= AGREE:
            return name, run
        log.warning("%s does not compute these features as torch does (%s)", name, reason)
    return TORCH, torch_run(module)


def _cosine(found: Tensor, expected: Tensor) -> float:
    return float(torch.cosine_similarity(found.flatten(1), expected.flatten(1)).min())


def torch_run(module: nn.Module) -> Run:
    """The module in evaluation mode by torch itself."""

    @torch.no_grad()
    def run(x: Tensor) -> Tensor:
        with autocast(x.device):
            out: Tensor = module(x)
        return out.float()

    module.eval()
    reuse_memory()
    return run


def _openvino_names() -> tuple[str, ...]:
    if find_spec("openvino") is None:
        return ()
    import openvino

    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return NAMES[:2] if "BF16" in able else NAMES[1:2]


def _openvino(module: nn.Module, probe: Tensor, precision: str, free: Sequence[int]) -> Run:
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
