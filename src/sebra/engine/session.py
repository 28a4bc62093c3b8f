"""Progress, checkpoints and interruption of one run.

A training loop asks the session for its epochs and hands over what must survive:

    for epoch in session.phase("train", epochs, {"network": network, "optimizer": optimizer}):
        ...

Everything else (when to save, how to resume, when to stop) happens here. A finished computation
whose result later phases need is wrapped in `once`.
"""

from __future__ import annotations

import os
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
from sebra.engine.packing import apply, capture, checked
from sebra.errors import Interrupted, NumericalError, SebraError, UsageError

EVERY_SECONDS = 30.0
BOUND_LATER = frozenset({"content"})  # identity that `bind` adds once the data is read
STATE, FAILED = "state.safetensors", "failed.safetensors"


def checkpoint_seconds() -> float:
    """Seconds between two checkpoints: `$SEBRA_CHECKPOINT_SECONDS`, else 30."""
    text = os.environ.get("SEBRA_CHECKPOINT_SECONDS", "").strip()
    try:
        seconds = float(text) if text else EVERY_SECONDS
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise UsageError(f"SEBRA_CHECKPOINT_SECONDS: {text!r} is not a number of seconds")
    return seconds


class ProgressSink(Protocol):
    """Shows how far a phase is; the command line has one that draws bars."""

    def start(self, phase: str, total: int) -> None:
        return

    def advance(self, done: int, images: int = 0, note: str = "") -> None:
        return

    def finish(self) -> None:
        return

    def message(self, text: str) -> None:
        return


class Silent(ProgressSink):
    """A progress sink that shows nothing."""


class Session:
    """One run's memory of where it is.

    folder: where the checkpoint goes; None keeps nothing on disk.
    identity: what the checkpoint belongs to (command, configuration, data, version). Resuming with
    another identity is refused and the difference is named.
    every_seconds: between two checkpoints; None is `checkpoint_seconds()`.
    """

    def __init__(
        self,
        folder: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        resume: bool = False,
        every_seconds: float | None = None,
        progress: ProgressSink | None = None,
    ) -> None:
        self.progress: ProgressSink = progress or Silent()
        self.notes: list[str] = []
        self.seconds: dict[str, float] = {}
        self._held: list[str] | None = None
        self._file = None if folder is None else folder / STATE
        self._identity = dict(identity or {})
        self._found: dict[str, Any] | None = None  # identity of the checkpoint that was read
        self._every = checkpoint_seconds() if every_seconds is None else every_seconds
        self._saved_at = time.monotonic()
        self._stop = 0  # the signal that asked to stop
        self._prefix: list[str] = []
        self._done: dict[str, Any] = {}
        self._current: dict[str, Any] | None = None
        self._latest: tuple[str, int, Mapping[str, Any]] | None = None  # phase, epoch, state
        if resume and self._file is not None and self._file.exists():
            self._load()

    def bind(self, name: str, value: Any) -> None:
        """Adds to the identity what is known only now, such as the content of the data.

        A checkpoint that was read and says otherwise is refused.
        """
        self._identity[name] = value
        if self._found is not None and self._found.get(name, value) != value:
            raise self._other_run(name)

    @contextmanager
    def working(self, phase: str) -> Iterator[None]:
        """Names a phase that takes a while and has no steps to count."""
        self.progress.start(phase, 1)
        try:
            yield
        finally:
            self.progress.finish()

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
                self._latest = key, epoch, state
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

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the run at the next epoch boundary, with a checkpoint.

        Before the first epoch, and at a second signal, it ends at once; the last checkpoint stays.
        A loss that is not finite ends it with the state of that moment beside the checkpoint.
        """
        main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGINT, signal.SIGTERM) if main else ()
        before = {s: signal.signal(s, self._handle) for s in signals}
        try:
            yield
        except NumericalError as error:
            raise NumericalError(f"{error}{self._keep_failed()}") from error
        finally:
            for s, old in before.items():
                signal.signal(s, old)

    def _handle(self, signum: int, frame: Any) -> None:
        again, self._stop = self._stop, signum
        if again or self._latest is None:
            if self._file is not None and not self._file.exists():
                self._save()  # nothing yet but what the run is, for `--resume` without DATA
            raise Interrupted(f"interrupted{self._how_to_go_on()}", signum)
        self.progress.message("stopping after this epoch (again to stop at once)")

    def close(self) -> None:
        """The run is finished: its checkpoint goes."""
        if self._file is None or not self._file.parent.is_dir():
            return
        leftovers = [*self._file.parent.glob(".*.tmp"), self._file.with_name(FAILED)]
        for file in (self._file, *leftovers):
            file.unlink(missing_ok=True)
        if not any(self._file.parent.iterdir()):
            self._file.parent.rmdir()

    def _epoch_done(self, key: str, epoch: int, state: Mapping[str, Any]) -> None:
        due = time.monotonic() - self._saved_at >= self._every
        if self._file is not None and (due or self._stop):
            self._current = {"phase": key, "epoch": epoch, "state": capture(state)}
            self._save()
        if self._stop:
            where = self._how_to_go_on()
            raise Interrupted(f"interrupted after epoch {epoch} of {key}{where}", self._stop)

    def _how_to_go_on(self) -> str:
        if self._file is None:
            return ""
        return f"; go on with --resume --out {self._file.parent.parent}"

    def _keep_failed(self) -> str:
        """Saves the state of the epoch that failed; says where."""
        if self._file is None or self._latest is None:
            return ""
        key, epoch, state = self._latest
        file = self._file.with_name(FAILED)
        failed = {"phase": key, "epoch": epoch, "state": capture(state)}
        try:
            packing.save(file, {"done": {}, "current": failed}, self._identity)
        except SebraError as error:
            return f"; its state could not be kept ({error})"
        return f"; epoch {epoch + 1} of {key}, its state is kept in {file}"

    def _restore(self, key: str, state: Mapping[str, Any]) -> int:
        current = self._current
        if current is None or current["phase"] != key:
            return 0
        self._current = None
        try:
            for name, value in state.items():
                apply(value, current["state"][name])
            torch.set_rng_state(current["state"]["__rng__"])
            return int(current["epoch"])
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UsageError(
                f"--resume: {self._file} does not fit this run ({key}: {reason}); "
                "start without --resume"
            ) from error

    def _save(self) -> None:
        """A checkpoint that cannot be written is no reason to lose the run: the last one stays."""
        if self._file is None:
            return
        try:
            packing.save(self._file, {"done": self._done, "current": self._current}, self._identity)
        except SebraError as error:
            self.note(f"no checkpoint could be written ({error}); the run goes on without one")
        self._saved_at = time.monotonic()

    def _load(self) -> None:
        assert self._file is not None
        state, self._found = packing.load(self._file)
        for name in sorted({*self._found, *self._identity} - BOUND_LATER):
            if self._identity.get(name) != self._found.get(name):
                raise self._other_run(name)
        try:
            self._done, self._current = checked(state)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UsageError(f"{self._file}: not a checkpoint of Sebra") from None

    def _other_run(self, name: str) -> UsageError:
        assert self._found is not None
        return UsageError(
            f"--resume: {self._file} belongs to another run: {name} was "
            f"{self._found.get(name)!r}, now {self._identity.get(name)!r}; "
            "use the same options and data or start without --resume"
        )
