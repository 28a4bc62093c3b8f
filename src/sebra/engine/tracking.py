"""Curves, figures and pictures to TensorBoard or Weights & Biases, by Accelerate's trackers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sebra.errors import UsageError
from sebra.places import offline

TRACKERS = {"tensorboard": "tensorboard", "wandb": "wandb"}  # name -> the package it needs


def check_tracker(name: str | None) -> None:
    """Refuses an unknown or missing tracker before any work is done."""
    if name is None:
        return
    if name not in TRACKERS:
        raise UsageError(f"--track: {name!r} is not one of {', '.join(TRACKERS)}")
    if find_spec(TRACKERS[name]) is None:
        raise UsageError(f"--track {name}: needs the package {name}; pip install {name} brings it")


def open_tracker(name: str, run_name: str, folder: Path) -> Any:
    """A started tracker; everything it writes stays under `folder` unless it goes to a server.

    Weights & Biases keeps the run on disk (`wandb sync` sends it later) where `SEBRA_OFFLINE` is
    set or no key is.
    """
    from accelerate import tracking

    check_tracker(name)
    if name == "tensorboard":
        made: Any = tracking.TensorBoardTracker(run_name, logging_dir=str(folder))
    else:
        online = os.environ.get("WANDB_API_KEY") and not offline()
        mode = os.environ.get("WANDB_MODE") or ("online" if online else "offline")
        made = tracking.WandBTracker(run_name, dir=str(folder), mode=mode)
    if hasattr(made, "start"):  # earlier releases of Accelerate start by themselves
        made.start()
    return made


def send(
    tracker: Any,
    config: Mapping[str, Any],
    curves: Sequence[tuple[int, Mapping[str, float]]],
    figures: Mapping[str, float],
    pictures: Mapping[str, Sequence[Any]],
) -> None:
    """Settings, one point per step of each curve, the final figures, then the galleries."""
    import numpy as np

    tracker.log({"config": "\n".join(f"    {k} = {v}" for k, v in config.items())}, step=0)
    for step, values in curves:
        tracker.log(dict(values), step=step)
    last = max((step for step, _ in curves), default=0)
    tracker.log({f"final/{name}": value for name, value in figures.items()}, step=last)
    for name, images in pictures.items():
        if images:
            stack = np.stack([np.asarray(image.convert("RGB")) for image in images])
            if getattr(tracker, "name", "") == "tensorboard":
                tracker.log_images({name: stack}, step=last, dataformats="NHWC")
            else:
                tracker.log_images({name: list(images)}, step=last)
    tracker.finish()
