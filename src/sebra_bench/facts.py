"""Where and with what a row was measured."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from sebra import __version__
from sebra.errors import UsageError
from sebra.samples.table import FeatureArray, Samples

_FINGERPRINT_ROWS = 1000  # enough to tell features apart without reading all of a memory map
_LIBRARIES = ("torch", "numpy", "timm")


def facts(device: Any) -> dict[str, Any]:
    """Commit (where known), date, hardware and versions, for a row."""
    found: dict[str, Any] = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "hardware": hardware(device),
        "versions": dict(_versions()),
    }
    known = _first_commit()
    return {"commit": known, **found} if known else found


def commit() -> str | None:
    """The commit this package was checked out from, `+` where files differ from it.

    `SEBRA_COMMIT` says it for a copy, whose history may be missing or that of an older state.
    """
    if said := os.environ.get("SEBRA_COMMIT"):
        return said
    here = Path(__file__)
    try:
        # A package installed inside some other project's checkout is not part of its history.
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        head = _git(here.parent, "rev-parse", "--short=12", "HEAD")
        changed = _git(here.parents[1], "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+" if changed else head


@cache
def _first_commit() -> str | None:
    """Asked once: what a process runs is what was there when it began."""
    return commit()


def runs_beside() -> int:
    """How many runs share the machine, as `SEBRA_RUNS_TOGETHER` says of commands side by side."""
    said = os.environ.get("SEBRA_RUNS_TOGETHER") or "1"
    if not said.isdecimal():
        raise UsageError(f"SEBRA_RUNS_TOGETHER: a number of runs, not {said!r}")
    return int(said)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()


def hardware(device: Any) -> dict[str, Any]:
    """The processor, its cores, and the GPU where the run used one."""
    import torch

    out: dict[str, Any] = {"cpu": _cpu_name(), "cores": os.cpu_count(), "threads": _threads()}
    if device.type == "cuda":
        out["gpu"] = torch.cuda.get_device_name(device)
    return out


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@cache
def _versions() -> dict[str, str]:
    out = {"sebra": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def fingerprint(samples: Samples) -> str:
    """Names the samples, their labels, splits and attributes; not the folder they lie in."""
    state = hashlib.sha256()
    for part in (samples.labels, samples.split, *(a.codes for a in samples.attributes.values())):
        state.update(np.ascontiguousarray(part).tobytes())
    for text in (*samples.classes, *samples.ids.tolist()):
        state.update(f"{text}\0".encode())
    if isinstance(samples.content, FeatureArray):
        rows = samples.content.rows[:: max(1, len(samples) // _FINGERPRINT_ROWS)]
        state.update(np.ascontiguousarray(samples.content.values[rows]).tobytes())
    return f"{len(samples)} samples, {state.hexdigest()[:12]}"
