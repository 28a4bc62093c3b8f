"""What a person said, as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sebra.errors import UsageError
from sebra.samples.marks import apply_marks
from sebra.samples.verdicts import Verdicts

from .test_marks import some_samples

OF = {"run": "runs/a", "data": "photos", "ranking": "abc"}


def change(kind: str, key: str, entry: Any) -> dict[str, Any]:
    return {"kind": kind, "key": key, "entry": entry}


def some_verdicts() -> Verdicts:
    said = Verdicts(dict(OF))
    said.say(change("patterns", "stage_1", {"verdict": "shortcut", "note": "the sea"}))
    said.say(change("patterns", "stage_2", {"verdict": "meant"}))
    said.say(change("suspects", "b", {"verdict": "wrong"}))
    said.say(change("suspects", "__proto__", {"verdict": "right"}))
    said.say(change("marks", "c", {"verdict": "relabel", "label": "dog"}))
    return said


def test_verdicts_come_back_from_their_file(tmp_path: Path) -> None:
    said = some_verdicts()
    said.save(tmp_path / "verdicts.json")
    assert Verdicts.load(tmp_path / "verdicts.json") == said
    assert said.called("shortcut") == ["stage_1"]


def test_a_verdict_can_be_changed_and_taken_back() -> None:
    said = some_verdicts()
    said.say(change("patterns", "stage_1", {"verdict": "unsure"}))
    assert said.patterns["stage_1"] == {"verdict": "unsure"}
    said.say(change("patterns", "stage_1", None))
    assert said.called("shortcut") == []
    assert "stage_1" not in said.patterns


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {"kind": "patterns"},
        change("others", "a", {"verdict": "meant"}),
        change("of", "run", {"verdict": "meant"}),
        change("patterns", "stage_1", {"verdict": "wrong"}),
        change("suspects", "a", {"verdict": "shortcut"}),
        change("patterns", "stage_1", "shortcut"),
        change("patterns", "stage_1", {"verdict": "meant", "note": "x" * 5000}),
        change("patterns", "stage_1", {"verdict": "meant", "other": "x"}),
        {"kind": ["patterns"], "key": "a", "entry": None},
        {"kind": "patterns", "key": 3, "entry": None},
    ],
)
def test_what_is_no_verdict_is_refused_and_changes_nothing(wrong: Any) -> None:
    said = some_verdicts()
    with pytest.raises(UsageError):
        said.say(wrong)
    assert said == some_verdicts()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "\0", "[" * 100_000])
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "verdicts.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"verdicts\.json: cannot be read as verdicts"):
        Verdicts.load(file)


def test_a_file_with_a_wrong_entry_is_refused(tmp_path: Path) -> None:
    found = some_verdicts().to_dict()
    found["patterns"]["stage_1"]["verdict"] = "perhaps"
    (tmp_path / "v.json").write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(UsageError, match="shortcut, meant, unsure"):
        Verdicts.load(tmp_path / "v.json")


def test_exclude_takes_verdicts_suspects_called_wrong_go_and_marks_count(tmp_path: Path) -> None:
    said = Verdicts(dict(OF))
    said.say(change("suspects", "a", {"verdict": "wrong"}))
    said.say(change("suspects", "b", {"verdict": "right"}))
    said.say(change("suspects", "c", {"verdict": "wrong"}))
    said.say(change("marks", "c", {"verdict": "relabel", "label": "dog"}))
    said.say(change("marks", "'d", {"verdict": "drop"}))
    said.save(tmp_path / "verdicts.json")
    samples = some_samples(["a", "b", "c", "'d", "in-test"])
    left = apply_marks(samples, str(tmp_path / "verdicts.json"))
    assert left.ids.tolist() == ["b", "c", "in-test"]
    assert left.labels.tolist() == [0, 1, 0]
