"""OpenVINO, which computes frozen networks on a CPU, where it is installed."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sebra_kernels.rounding import rounded

Run = Callable[[Tensor], Tensor]
PLAIN, ROUNDED = "f32", "int8"
_TRACED = 2  # samples; another number in the check shows whether the trace holds on to it
_TRIAL = Path(__file__).with_name("trial.py")


def precisions() -> tuple[str, ...]:
    """What this machine computes in, the quickest first; nothing without OpenVINO."""
    return () if find_spec("openvino") is None else _tried(_TRIAL)


@cache
def _tried(trial: Path) -> tuple[str, ...]:
    """A machine that names an instruction may have it in name only, or be slower with it."""
    command = [sys.executable, str(trial)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = sorted((float(took), name) for name, took in map(str.split, said.splitlines()))
    return tuple(name for _, name in found) or (PLAIN,)


@cache
def _core() -> Any:
    """One for the whole process.

    Each gives the thread a stack for signals and takes it away at its end: of two, the later to end
    brings back the other's, which is gone, and the next signal ends the process.
    """
    import openvino

    return openvino.Core()


def compiled(
    module: nn.Module, probe: Tensor, precision: str, free: Sequence[int]
) -> Iterator[Run]:
    """`module` for inputs like `probe`, of any length in the dimensions `free`.

    In eight bits several, each more exact than the one before; maybe none.
    """
    import openvino
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a trace fixes: `quickest` compares the results
        trace: Any = torch.jit.trace
        traced = trace(module, probe[:_TRACED], check_trace=False)
        # OpenVINO may end the process after it has refused an input, so torch is asked first.
        traced(probe[: _TRACED + 1])
        decoder = TorchScriptPythonDecoder(traced)
    # Not by openvino.convert_model, which reports to its makers.
    front_end: Any = FrontEndManager().load_by_framework("pytorch")
    model = front_end.convert(front_end.load(decoder))
    shape = [-1 if i in free else length for i, length in enumerate(probe.shape)]
    model.reshape(openvino.PartialShape(shape))
    hints = precisions() if precision == ROUNDED else (precision,)
    settings = {
        "INFERENCE_PRECISION_HINT": next(p for p in hints if p != ROUNDED),
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "ENABLE_CPU_PINNING": False,  # other processes may be bound to the same cores
    }

    def laid_out(model: Any) -> Any:
        return _core().compile_model(model, "CPU", settings)

    if precision == ROUNDED:
        from openvino._offline_transformations import apply_moc_transformations

        apply_moc_transformations(model, cf=True)  # norms become part of the weights
        models = rounded(model, probe[::2], laid_out)
    else:
        models = iter([model])
    for each in models:
        yield partial(_asked, laid_out(each))


def _asked(model: Any, x: Tensor) -> Tensor:
    return torch.from_numpy(model(x.contiguous().numpy())[0])
