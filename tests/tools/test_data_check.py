"""What `describe` says of a data set."""

import json
import shutil
from dataclasses import replace

import numpy as np

import miniatures
from sebra.samples.open import open_samples
from sebra.samples.table import untelling
from sebra_tools.data_check import describe


def test_counts_groups_and_aligned_values(tmp_path):
    facts = describe(open_samples(f"urbancars:{miniatures.urbancars(tmp_path)}"))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["splits"] == {"train": 24, "val": 16, "test": 16}
    assert facts["classes"][0] == {
        "name": "urban",
        "counts": {"train": 12, "val": 8, "test": 8},
    }
    assert facts["attributes"][0]["aligned"] == {"urban": "urban", "country": "country"}
    assert facts["groups"][1] == {
        "name": "urban, background aligned, object conflicting",
        "class": "urban",
        "alignment": {"background": "aligned", "object": "conflicting"},
        "counts": {"train": 2, "val": 2, "test": 2},
    }
    assert len(facts["groups"]) == 8
    assert "leakage" not in facts


def test_deep_finds_unreadable_files_and_copies_across_splits(tmp_path):
    root = miniatures.split_folder(tmp_path / "d")
    shutil.copy(root / "train" / "cat" / "001.jpg", root / "test" / "dog" / "copy.jpg")
    shutil.copy(root / "train" / "cat" / "002.jpg", root / "train" / "cat" / "twin.jpg")
    (root / "val" / "dog" / "000.jpg").write_bytes(b"")
    samples = open_samples(str(root))
    shallow, deep = describe(samples), describe(samples, deep=True)
    assert shallow["faults"] == []
    assert deep["faults"] == [{"id": "val/dog/000.jpg", "reason": "empty file"}]
    assert deep["leakage"] == {
        "count": 1,
        "examples": [["train/cat/001.jpg", "test/dog/copy.jpg"]],
    }
    assert deep["splits"]["val"] == shallow["splits"]["val"] - 1


def test_notes_say_what_is_lacking(tmp_path):
    notes = describe(open_samples(str(miniatures.folder(tmp_path / "d"))))["notes"]
    assert "no val split" in notes
    assert "no test split" in notes
    assert any("no attributes" in note for note in notes)


def test_leakage_in_features_and_texts(tmp_path):
    x = miniatures.features(d=20)["X"]
    x[55] = x[1]
    x[54, :-1] = x[2, :-1]  # alike, but not the same
    data = str(miniatures.npz(tmp_path / "x.npz", X=x))
    assert describe(open_samples(data), deep=True)["leakage"]["examples"] == [["1", "55"]]
    pairs = [("a man", "he is"), ("a dog", "it is"), ("a man", "he is not"), ("a dog", "it is")]
    rows = [("train", 0), ("train", 1), ("test", 0), ("test", 1), ("train", 0), ("train", 1)]
    pairs += [("a cat", "it sits"), ("a cow", "it eats")]
    lines = [f"{a},{b},{split},{y}" for (a, b), (split, y) in zip(pairs, rows, strict=True)]
    file = tmp_path / "texts.csv"
    file.write_text("\n".join(["text,text_b,split,label", *lines]) + "\n", encoding="utf-8")
    assert describe(open_samples(str(file)), deep=True)["leakage"]["examples"] == [["1", "3"]]


def test_an_attribute_that_goes_with_no_class_is_named(tmp_path):
    """In both classes most are `b`, though `a` is more often met in one of them."""
    same = np.array(["a"] * 14 + ["b"] * 16 + ["a"] * 3 + ["b"] * 27)
    told = np.array(["a"] * 16 + ["b"] * 14 + ["a"] * 3 + ["b"] * 27)
    labels = np.repeat([0, 1], 30)
    features = np.random.default_rng(0).normal(size=(60, 3))
    for values, expected in ((same, 1), (told, 0)):
        file = tmp_path / "x.npz"
        np.savez(file, X=features, y=labels, place=values)
        samples = open_samples(str(file))
        lines = [n for n in describe(samples)["notes"] if n.startswith("attribute place: 'b' is")]
        assert len(lines) == expected
        assert untelling(samples) == lines


def test_what_a_layout_fixes_is_not_questioned(tmp_path):
    samples = open_samples(f"urbancars:{miniatures.urbancars(tmp_path)}")
    place = samples.attributes["background"]
    fixed = replace(samples, attributes={"background": replace(place, aligned=(0, 0))})
    free = replace(samples, attributes={"background": replace(place, aligned=None)})
    assert untelling(fixed) == untelling(free) == []
