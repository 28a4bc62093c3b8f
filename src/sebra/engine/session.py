"""Progress, checkpoints and interruption of one run.

A training loop asks the session for its epochs and hands over what must survive:

    for epoch in session.phase("train", epochs, {"network": network, "optimizer": optimizer}):
        ...

Everything else (when to save, how to resume, when to stop) happens here. A finished computation
whose result later phases need is wrapped in `once`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from sebra.engine import packing
from sebra.errors import Interrupted, UsageError


class ProgressSink(Protocol):
    """Shows how far a phase is; the command line has one that draws bars."""

    def start(self, phase: str, total: int) -> None: ...
    def advance(self, done: int, images: int = 0, note: str = "") -> None: ...
    def finish(self) -> None: ...
    def message(self, text: str) -> None: ...


class Silent:
    """A progress sink that shows nothing."""

    def start(self, phase: str, total: int) -> None:
        pass

    def advance(self, done: int, images: int = 0, note: str = "") -> None:
        pass

    def finish(self) -> None:
        pass

    def message(self, text: str) -> None:
        pass


class Session:
    """One run's memory of where it is.

    folder: where the checkpoint goes; None keeps nothing on disk.
    identity: what the checkpoint belongs to (command, configuration, data, version). Resuming with
    another identity is refused and the difference is named.
    """

    def __init__(
        self,
        folder: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        resume: bool = False,
        every_seconds: float = 30.0,
        progress: ProgressSink | None = None,
    ) -> None:
        self.progress: ProgressSink = progress or Silent()
        self.notes: list[str] = []
        self.seconds: dict[str, float] = {}
        self._held: list[str] | None = None
        self._file = None if folder is None else folder / "state.safetensors"
        self._identity = dict(identity or {})
        self._every = every_seconds
        self._saved_at = time.monotonic()
        self._stop = threading.Event()
        self._prefix: list[str] = []
        self._done: dict[str, Any] = {}
        self._current: dict[str, Any] | None = None
        if resume and self._file is not None and self._file.exists():
            self._load()

    def note(self, text: str) -> None:
        """Something the user should know; shown now and kept in `metrics.json`."""
        if text not in self.notes:
            self.notes.append(text)
            if self._held is None:
                self.progress.message(text)
            else:
                self._held.append(text)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Notes of the block are shown at its end, and not if it fails: an error stands alone."""
        if self._held is not None:
            yield
            return
        self._held = []
        try:
            yield
        except BaseException:
            self._held = None
            raise
        held, self._held = self._held, None
        for text in held:
            self.progress.message(text)

    def phase(self, name: str, total: int, state: Mapping[str, Any]) -> Iterator[int]:
        """Yields the epochs that are still to do; restores `state` first if a checkpoint has it.

        `state` values are tensors (updated in place), or objects with `state_dict` and
        `load_state_dict`, or `torch.Generator`s. Stop early by `break`; the phase then counts as
        finished.
        """
        key = "/".join([*self._prefix, name])
        first = self._restore(key, state)
        self.progress.start(name, total)
        self.progress.advance(first)
        started = time.monotonic()
        try:
            for epoch in range(first, total):
                yield epoch
                self.progress.advance(epoch + 1)
                self._epoch_done(key, epoch + 1, state)
        finally:
            self.progress.finish()
            self.seconds[key] = self.seconds.get(key, 0.0) + time.monotonic() - started

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """The result of `compute`, taken from the checkpoint where it was finished before."""
        key = "/".join([*self._prefix, name])
        if key not in self._done:
            self._prefix.append(name)
            try:
                result = compute()
            finally:
                self._prefix.pop()
            self._done[key] = result
            self._current = None
            self._save()
        restored: dict[str, Tensor] = self._done[key]
        return restored

    def enter(self, name: str) -> None:
        """Phases from here on belong to `name`, so that two runs of one kind do not mix."""
        self._prefix.append(name)

    def leave(self) -> None:
        self._prefix.pop()

    @property
    def interrupted(self) -> bool:
        return self._stop.is_set()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the run at the next epoch boundary, with a checkpoint.

        A second signal ends it at once; the last checkpoint stays.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(signum: int, frame: Any) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()
            self.progress.message("stopping after this epoch (again to stop at once)")

        before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for s, old in before.items():
                signal.signal(s, old)

    def close(self) -> None:
        """The run is finished: its checkpoint goes."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            if self._file.parent.is_dir() and not any(self._file.parent.iterdir()):
                self._file.parent.rmdir()

    def _epoch_done(self, key: str, epoch: int, state: Mapping[str, Any]) -> None:
        due = time.monotonic() - self._saved_at >= self._every
        if self._file is not None and (due or self._stop.is_set()):
            self._current = {"phase": key, "epoch": epoch, "state": _capture(state)}
            self._save()
        if self._stop.is_set():
            where = f"; go on with --resume --out {self._file.parent.parent}" if self._file else ""
            raise Interrupted(f"interrupted after epoch {epoch} of {key}{where}")

    def _restore(self, key: str, state: Mapping[str, Any]) -> int:
        current = self._current
        if current is None or current["phase"] != key:
            return 0
        self._current = None
        for name, value in state.items():
            _apply(value, current["state"][name])
        torch.set_rng_state(current["state"]["__rng__"])
        return int(current["epoch"])

    def _save(self) -> None:
        if self._file is None:
            return
        packing.save(self._file, {"done": self._done, "current": self._current}, self._identity)
        self._saved_at = time.monotonic()

    def _load(self) -> None:
        assert self._file is not None
        state, header = packing.load(self._file)
        for name in sorted({*header, *self._identity}):
            ours, theirs = self._identity.get(name), header.get(name)
            if ours != theirs:
                raise UsageError(
                    f"--resume: {self._file} belongs to another run: {name} was {theirs!r}, "
                    f"now {ours!r}; use the same options or start without --resume"
                )
        try:
            self._done, self._current = dict(state["done"]), state["current"]
        except (KeyError, TypeError):
            raise UsageError(f"{self._file}: not a checkpoint of Sebra") from None


def _capture(state: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"__rng__": torch.get_rng_state()}
    for name, value in state.items():
        if isinstance(value, Tensor):
            out[name] = value.detach().cpu()
        elif isinstance(value, torch.Generator):
            out[name] = value.get_state()
        else:
            out[name] = value.state_dict()
    return out


def _apply(target: Any, saved: Any) -> None:
    if isinstance(target, Tensor):
        with torch.no_grad():
            target.copy_(saved)
    elif isinstance(target, torch.Generator):
        target.set_state(saved)
    else:
        target.load_state_dict(saved)
        if isinstance(target, torch.optim.Optimizer):
            _rates_to_device(target)


def _rates_to_device(optimizer: torch.optim.Optimizer) -> None:
    """A restored learning rate must be where a captured graph reads it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].to(group["params"][0].device)
