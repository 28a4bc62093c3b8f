"""Frozen features by every engine in turn, and whole commands as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sebra.engine import networks
from sebra.engine.engines import quickest, torch_run
from sebra.engine.patches import View
from sebra.errors import SebraError
from sebra.workflows.prepared import Prepared, Source
from sebra_bench.speed.rates import Line
from sebra_bench.speed.tools import seconds_of

COMMANDS = (("rank",), ("rank", "--method", "peel"), ("audit",), ("debias",))
_BATCH, _COMPARED = 32, 64


def engine_lines(prepared: Prepared) -> list[Line]:
    """The frozen network over one batch of pictures: the engine that is chosen here beside torch.

    One after the other, three times each: on a machine with other work only ratios say something.
    """
    _, inputs = prepared.split("train")
    x = inputs.batch(torch.arange(min(_COMPARED, len(inputs)), device=prepared.device))
    view = View(networks.build(prepared.backbone_spec(), 0, prepared.weights).to(prepared.device))
    view.look(x[:1])
    name, run = quickest(view, x, view.parts)
    plain, x = torch_run(view), x[:_BATCH]
    ours = len(x) / seconds_of(lambda: run(x), prepared.device)
    theirs = len(x) / seconds_of(lambda: plain(x), prepared.device)
    line = Line("features, frozen", "images/s", ours, eager=theirs)
    line.extra = {"engine": name, "cores": torch.get_num_threads(), "remark": f"by {name}"}
    return [line]


def command_lines(source: Source) -> list[Line]:
    """Whole commands, the interpreter's start included, with caches warm and what came first."""
    return [_command(source, command) for command in COMMANDS]


def _command(source: Source, command: tuple[str, ...]) -> Line:
    given = {"device": source.device, "backbone": source.backbone, "weights": source.weights}
    given["image-size"] = None if source.image_size is None else str(source.image_size)
    options = [word for k, v in given.items() if v is not None for word in (f"--{k}", v)]
    words = [command[0], source.data, *command[1:], *options]
    first, _ = _run(words)
    seconds, metrics = _run(words)
    line = Line(f"command: {' '.join(command)}", "s", seconds)
    spent = ", ".join(f"{k} {v:.1f}" for k, v in metrics["seconds"].items())
    remark = f"{spent} s; the one before, {first:.1f} s"
    line.extra = {"first_seconds": first, "phases": metrics["seconds"], "remark": remark}
    return line


def _run(words: list[str]) -> tuple[float, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", str(Path(folder) / "run"), "--json"]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "sebra", *words, *out],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
    if done.returncode:
        raise SebraError(f"sebra {words[0]}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return seconds, found
