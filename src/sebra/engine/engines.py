"""What computes a frozen network: OpenVINO on a CPU where it is installed, else torch.

OpenVINO joins and lays out layers for the processor at hand and takes bfloat16 or eight bits where
the processor is quicker with them. It is used only where it gives what torch gives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sebra.engine.device import autocast, reuse_memory
from sebra.plugins import COPIES, plugins

log = logging.getLogger(__name__)

TORCH = "torch"
ROUNDED = "openvino int8"  # has to be fitted to some samples first
NAMES = (ROUNDED, "openvino bf16", "openvino f32", TORCH)  # the quickest first
AGREE = 0.999  # cosine of every sample's values and torch's

Run = Callable[[Tensor], Tensor]
Parts = Callable[[Tensor], Sequence[Tensor]]


@torch.no_grad()
def quickest(
    module: nn.Module,
    probe: Tensor,
    parts: Parts,
    free: Sequence[int] = (0,),
    names: Sequence[str] = NAMES,
) -> tuple[str, Run]:
    """The quickest engine for `module` that agrees with torch on `probe`: its name and function.

    parts: what of the module's output to compare apart. free: dimensions of the input that may
    have another length than in `probe`. names: the engines to choose from.
    """
    module.eval()
    maker = plugins(COPIES).get("frozen") if probe.device.type == "cpu" else None
    engine: Any = None if maker is None else maker.load()
    known = [] if engine is None else [f"openvino {p}" for p in engine.precisions()]
    known = [name for name in known if name in names]
    expected = parts(module(probe)) if known else ()
    for name in known:
        reason = "it has no such form"
        try:
            for run in engine.compiled(module, probe, name.split()[1], free):
                least = min(map(_cosine, parts(run(probe)), expected))
                if least >= AGREE:
                    return name, run
                reason = f"cosine {least:.4f}"
        except Exception as error:  # an operation it does not know, a trace that fails
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        level = logging.INFO if name == ROUNDED else logging.WARNING
        log.log(level, "%s does not compute these features as torch does (%s)", name, reason)
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
