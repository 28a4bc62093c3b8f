"""`sebra export`: a model as a file that other runtimes read."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sebra.debiasing.model import Model
from sebra.errors import UsageError
from sebra.whole import written

FORMATS = ("onnx",)
INPUT, OUTPUT = "input", "probabilities"
_NEEDED = ("onnx", "onnxscript")


class _Probabilities(nn.Module):
    """Raw input to class probabilities: normalisation and softmax inside."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.network(x).float().softmax(1)
        return out


def export(model: Model, file: Path, format_: str = "onnx") -> dict[str, Any]:
    """Writes the model and returns what the file takes and gives.

    Input: uint8 images n x 3 x height x width (RGB, 0..255), or float32 features n x d; any n.
    Output: probabilities n x classes. The class names are in the file's metadata.
    """
    if model.tokeniser is not None:
        raise UsageError("export: the model takes text, whose tokeniser an ONNX file cannot hold")
    if format_ not in FORMATS:
        raise UsageError(f"--format: {format_!r} is not one of {', '.join(FORMATS)}")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--format onnx: needs {' and '.join(missing)}; pip install 'sebra[export]' brings them"
        )
    with written(file) as (temporary,):
        _write_onnx(model, temporary)
    kind = "uint8" if len(model.inputs) == 3 else "float32"
    return {
        "format": format_,
        "file": str(file),
        "input": {"name": INPUT, "type": kind, "shape": ["batch", *model.inputs]},
        "output": {"name": OUTPUT, "type": "float32", "shape": ["batch", len(model.classes)]},
        "classes": list(model.classes),
    }


def _write_onnx(model: Model, file: Path) -> None:
    import onnx

    kind = torch.uint8 if len(model.inputs) == 3 else torch.float32
    # Two samples: the exporter takes a dimension of one for a constant.
    example = torch.zeros((2, *model.inputs), dtype=kind, device=model.device)
    network = _Probabilities(model.network).eval()
    with _quiet():
        program = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    assert program is not None
    proto = program.model_proto
    onnx.helper.set_model_props(proto, {"classes": json.dumps(list(model.classes))})
    onnx.save(proto, file)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter reports its steps on stdout, which belongs to the command."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with (
            open(os.devnull, "w", encoding="utf-8") as sink,
            redirect_stdout(sink),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
