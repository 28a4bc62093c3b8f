"""Checkpoints, resumption and interruption."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import torch

from ranking.toys import images, noisy
from sebra.engine import packing
from sebra.engine.session import Session, Silent
from sebra.errors import Interrupted, UsageError
from sebra.ranking.ranking import Blind
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker


class Dying(Blind):
    """A history that survives, and a crash after so many rounds."""

    def __init__(self, after: int | None = None) -> None:
        self.after, self.losses = after, []

    def round(self, number, network, loss, learned):
        if self.after is not None and number >= self.after:
            raise RuntimeError("power cut")
        self.losses.append(loss)

    def state_dict(self):
        return {"losses": self.losses}

    def load_state_dict(self, state):
        self.losses = list(state["losses"])


VARIANTS = {
    "epochs": {"resolution": "epoch", "lr": 0.5, "batch": 16},
    "paced": {"resolution": "auto", "lr": 20.0, "batch": 4},
    "adam": {"resolution": "epoch", "optimizer": "adam", "lr": 0.02, "batch": 16},
    "remaining": {"resolution": "epoch", "draws": "remaining", "lr": 0.5, "batch": 16},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_resumed_ranking_equals_an_uninterrupted_one_bit_for_bit(name, tmp_path):
    config = SebraConfig(epochs=8, momentum=0.5, flip=False, p_critical=0.8, **VARIANTS[name])
    whole, history, told = SelfGuidedRanker(config), Dying(), Session()
    expected = whole.rank(noisy(), told, history)
    rounds = len(history.losses)
    assert rounds >= 4
    for after in {1, rounds // 2, rounds - 1}:
        folder = tmp_path / str(after)
        with pytest.raises(RuntimeError, match="power cut"):
            SelfGuidedRanker(config).rank(noisy(), Session(folder, every_seconds=0), Dying(after))
        seen, session = Dying(), Session(folder, resume=True)
        found = SelfGuidedRanker(config).rank(noisy(), session, seen)
        np.testing.assert_array_equal(found.bucket, expected.bucket)
        np.testing.assert_array_equal(found.score, expected.score)
        assert found.details == expected.details
        assert seen.losses == history.losses
        assert session.notes == told.notes


def test_a_ranking_whose_rounds_were_all_done_is_closed_the_same_way(tmp_path):
    """The crash comes after the last round, for instance while the run folder is written."""
    config = SebraConfig(epochs=1, flip=False, p_critical=0.95, **VARIANTS["paced"])
    first = Dying()
    expected = SelfGuidedRanker(config).rank(noisy(), Session(tmp_path, every_seconds=0), first)
    assert len(first.losses) == 4  # the most rounds there are: nothing is left to do
    assert (expected.bucket == 4).any()
    again = SelfGuidedRanker(config).rank(noisy(), Session(tmp_path, resume=True), Dying(after=0))
    np.testing.assert_array_equal(again.bucket, expected.bucket)
    np.testing.assert_array_equal(again.score, expected.score)
    assert again.details == expected.details


def test_a_resumed_ranking_of_images_repeats_the_augmentation(tmp_path):
    config = SebraConfig(epochs=3, optimizer="adam", lr=1e-3, batch=8, crop=0.8, resolution="epoch")
    expected = SelfGuidedRanker(config).rank(images(), Session(), Blind())
    with pytest.raises(RuntimeError, match="power cut"):
        SelfGuidedRanker(config).rank(images(), Session(tmp_path, every_seconds=0), Dying(1))
    found = SelfGuidedRanker(config).rank(images(), Session(tmp_path, resume=True), Blind())
    np.testing.assert_array_equal(found.score, expected.score)


def counted(session: Session, epochs: int = 5, stop_at: int | None = None) -> torch.Tensor:
    """A loop that adds the number of each epoch; interrupted by a signal in one of them."""
    total = torch.zeros(())
    for epoch in session.phase("train", epochs, {"total": total}):
        total += epoch + 1
        if epoch == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
    return total


def test_sigint_stops_at_the_end_of_the_epoch_with_a_checkpoint(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    session = Session(tmp_path / "run" / "checkpoint", every_seconds=3600)
    with (
        session.stoppable(),
        pytest.raises(Interrupted, match=r"after epoch 3 of train.*--resume --out .*run") as stop,
    ):
        counted(session, stop_at=2)
    assert stop.value.exit_status == 130
    assert signal.getsignal(signal.SIGINT) is before
    state, _ = packing.load(tmp_path / "run" / "checkpoint" / "state.safetensors")
    assert state["current"]["epoch"] == 3
    assert float(state["current"]["state"]["total"]) == 1 + 2 + 3
    resumed = Session(tmp_path / "run" / "checkpoint", resume=True)
    assert float(counted(resumed)) == 15


def test_a_second_signal_stops_at_once(tmp_path):
    session = Session(tmp_path, every_seconds=3600)
    went_on = []

    def loop() -> None:
        for _ in session.phase("train", 3, {}):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            went_on.append(1)

    with session.stoppable(), pytest.raises(Interrupted) as stop:
        loop()
    assert stop.value.exit_status == 143
    assert went_on == []


def test_outside_the_main_thread_signals_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with Session().stoppable():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"lr": 0.1}, "lr was None, now 0.1"),
        ({"data": "b"}, "data was 'a', now 'b'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_the_difference_named(tmp_path, changed, words):
    identity = {"command": "rank", "seed": 0, "data": "a"}
    counted(Session(tmp_path, identity, every_seconds=0), epochs=2)
    assert float(counted(Session(tmp_path, identity, resume=True), epochs=3)) == 6
    with pytest.raises(UsageError, match=words):
        Session(tmp_path, {**identity, **changed}, resume=True)


def test_a_checkpoint_of_other_content_is_refused(tmp_path):
    packing.save(tmp_path / "state.safetensors", {"weights": 1}, {})
    with pytest.raises(UsageError, match="not a checkpoint"):
        Session(tmp_path, resume=True)


def test_without_resume_an_old_checkpoint_is_not_looked_at(tmp_path):
    counted(Session(tmp_path, every_seconds=0), epochs=2)
    assert float(counted(Session(tmp_path), epochs=3)) == 6
    assert len([*Session(tmp_path).phase("train", 3, {"total": torch.zeros(())})]) == 3


def test_once_computes_once_and_survives_a_resumption(tmp_path):
    calls = []

    def compute() -> dict[str, torch.Tensor]:
        calls.append(1)
        return {"answer": torch.tensor([4, 2])}

    first = Session(tmp_path)
    assert first.once("question", compute)["answer"].tolist() == [4, 2]
    for session in (first, Session(tmp_path, resume=True)):
        assert session.once("question", compute)["answer"].tolist() == [4, 2]
    assert len(calls) == 1


def test_an_interrupted_once_goes_on_inside(tmp_path):
    epochs = []

    def compute(session: Session, dies: bool) -> dict[str, torch.Tensor]:
        total = torch.zeros(())
        for epoch in session.phase("inner", 4, {"total": total}):
            epochs.append(epoch)
            total += 10**epoch
            if dies and epoch == 2:
                raise RuntimeError
        return {"total": total}

    session = Session(tmp_path, every_seconds=0)
    with pytest.raises(RuntimeError):
        session.once("outer", lambda: compute(session, True))
    resumed = Session(tmp_path, resume=True)
    found = resumed.once("outer", lambda: compute(resumed, False))
    assert float(found["total"]) == 1111
    assert epochs == [0, 1, 2, 2, 3]


def test_a_finished_run_leaves_no_checkpoint(tmp_path):
    session = Session(tmp_path / "checkpoint", every_seconds=0)
    counted(session)
    assert (tmp_path / "checkpoint").is_dir()
    session.close()
    assert not (tmp_path / "checkpoint").exists()
    Session().close()


def test_notes_are_kept_once_and_progress_is_told():
    told = []

    class Sink:
        def start(self, phase, total):
            told.append(("start", phase, total))

        def advance(self, done, images=0, note=""):
            told.append(("advance", done))

        def finish(self):
            told.append(("finish",))

        def message(self, text):
            told.append(("message", text))

    session = Session(progress=Sink())
    session.note("a")
    session.note("a")
    counted(session, epochs=2)
    assert session.notes == ["a"]
    assert told == [
        ("message", "a"), ("start", "train", 2), ("advance", 0), ("advance", 1), ("advance", 2),
        ("finish",),
    ]  # fmt: skip
    assert session.seconds["train"] >= 0


def test_notes_of_a_check_wait_for_its_end_and_fall_with_it():
    shown = []

    class Sink(Silent):
        def message(self, text):
            shown.append(text)

    session = Session(progress=Sink())
    with session.checking():
        with session.checking():
            session.note("inner")
        assert shown == []
    assert shown == ["inner"]

    def fail():
        with session.checking():
            session.note("never shown")
            raise UsageError("wrong")

    with pytest.raises(UsageError):
        fail()
    session.note("later")
    assert shown == ["inner", "later"]


def test_a_run_that_was_stopped_before_it_read_its_data_goes_on(tmp_path):
    session = Session(tmp_path, {"command": "rank"})
    with pytest.raises(Interrupted), session.stoppable():
        os.kill(os.getpid(), signal.SIGTERM)
    resumed = Session(tmp_path, {"command": "rank"}, resume=True)
    resumed.bind("content", "3 samples")
    resumed.once("part", lambda: {"x": torch.zeros(1)})
    again = Session(tmp_path, {"command": "rank"}, resume=True)
    with pytest.raises(UsageError, match="content was '3 samples', now '4 samples'"):
        again.bind("content", "4 samples")
