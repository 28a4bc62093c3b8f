"""Marks read back from the report's CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sebra.errors import UsageError
from sebra.samples.marks import apply_marks
from sebra.samples.table import Attribute, FeatureArray, Samples


def some_samples(ids: list[str], classes: tuple[str, ...] = ("cat", "dog")) -> Samples:
    n = len(ids)
    codes = np.arange(n, dtype=np.int64) % 2
    return Samples(
        ids=np.array(ids, dtype=object),
        labels=np.zeros(n, dtype=np.int64),
        classes=classes,
        split=np.array([0] * (n - 1) + [2], dtype=np.int8),
        content=FeatureArray(np.arange(n, dtype=np.float32)[:, None], np.arange(n)),
        attributes={"place": Attribute("place", codes, ("in", "out"))},
        source="pets",
    )


def marked(tmp_path: Path, text: str) -> str:
    file = tmp_path / "marks.csv"
    file.write_text(text, encoding="utf-8", newline="")
    return str(file)


def test_drop_removes_the_sample_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    samples = some_samples(["a", "b", "c", "d"])
    left = apply_marks(samples, marked(tmp_path, "id,mark,label\nb,drop,\n"))
    assert left.ids.tolist() == ["a", "c", "d"]
    assert left.attributes["place"].codes.tolist() == [0, 0, 1]
    assert isinstance(left.content, FeatureArray)
    assert left.content.rows.tolist() == [0, 2, 3]


def test_relabel_changes_the_label_and_leaves_the_original_alone(tmp_path: Path) -> None:
    samples = some_samples(["a", "b", "c"])
    changed = apply_marks(samples, marked(tmp_path, "id,mark,label\nb,relabel,dog\n"))
    assert changed.labels.tolist() == [0, 1, 0]
    assert samples.labels.tolist() == [0, 0, 0]


def test_keep_and_spurious_change_nothing(tmp_path: Path) -> None:
    samples = some_samples(["a", "b", "c"])
    same = apply_marks(samples, marked(tmp_path, "id,mark,label\na,keep,\nb,spurious,\n"))
    assert same.ids.tolist() == ["a", "b", "c"]
    assert same.labels.tolist() == [0, 0, 0]


def test_only_training_samples_are_dropped(tmp_path: Path) -> None:
    samples = some_samples(["a", "b", "in-test"])
    left = apply_marks(samples, marked(tmp_path, "id,mark,label\nin-test,drop,\n"))
    assert left.ids.tolist() == ["a", "b", "in-test"]


def test_a_guarded_name_is_found_again(tmp_path: Path) -> None:
    samples = some_samples(["=cmd", "'=cmd", "last"], ("cat", "@dog"))
    text = "id,mark,label\n'=cmd,drop,\n''=cmd,relabel,'@dog\n"
    left = apply_marks(samples, marked(tmp_path, text))
    assert left.ids.tolist() == ["'=cmd", "last"]
    assert left.labels.tolist() == [1, 0]


def test_a_name_written_by_hand_needs_no_guard(tmp_path: Path) -> None:
    samples = some_samples(["-x.jpg", "'quoted'", "last"])
    left = apply_marks(samples, marked(tmp_path, "id,mark\n-x.jpg,drop\n'quoted',drop\n"))
    assert left.ids.tolist() == ["last"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,mark,label\na,keep,\nzzz,drop,\n", "line 3: no sample 'zzz' in pets"),
        ("id,mark,label\na,relabel,horse\n", "'horse' is no class of pets (has: cat, dog)"),
        ("id,mark,label\na,relabel,\n", "'' is no class"),
        ("id,mark,label\na,delete,\n", "line 2: mark 'delete' is none of keep"),
        ("path,what\na,drop\n", "expected the columns id,mark,label"),
        ("", "expected the columns"),
        ('id,mark,label\n"a,drop,\n', "not a CSV file"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        apply_marks(some_samples(["a", "b"]), marked(tmp_path, text))
    message = str(caught.value)
    assert said in message
    assert message.startswith("--exclude: ")
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere\.csv"):
        apply_marks(some_samples(["a", "b"]), str(tmp_path / "nowhere.csv"))
