"""Copies, two labels, outliers, dark and blurred pictures: found where they are, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sebra.samples.open import open_samples
from sebra_tools import ordinary
from sebra_tools.data_check import describe
from sebra_tools.ordinary import checks


def photo(seed: int, size=(96, 72), grain=30) -> Image.Image:
    """Something with structure: a few soft spots of colour, and a little grain."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    noise = rng.normal(0, grain, (*size[::-1], 3))
    return Image.fromarray(np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8))


@pytest.fixture
def folder(tmp_path):
    number = 0
    for split, n in (("train", 16), ("test", 6)):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(n):
                photo(number).save(tmp_path / split / name / f"{i:02d}.png")
                number += 1
    return tmp_path


def found(folder) -> dict[str, dict]:
    return {f["kind"]: f for f in checks(open_samples(str(folder)))}


def test_nothing_is_said_of_clean_pictures(folder):
    assert found(folder) == {}


def test_a_resized_copy_in_the_test_split_is_a_leak_and_named(folder):
    with Image.open(folder / "train" / "cat" / "03.png") as picture:
        picture.resize((61, 40)).save(folder / "test" / "cat" / "copy.jpg", quality=80)
    leak = found(folder)["leakage"]
    assert leak["count"] == 1
    assert leak["examples"] == [["train/cat/03.png (train, cat)", "test/cat/copy.jpg (test, cat)"]]
    notes = describe(open_samples(str(folder)), deep=True)["notes"]
    assert any("train/cat/03.png" in n and "test/cat/copy.jpg" in n for n in notes)


def test_one_picture_under_two_labels(folder):
    with Image.open(folder / "train" / "cat" / "03.png") as picture:
        picture.save(folder / "train" / "dog" / "again.jpg", quality=90)
    kinds = found(folder)
    assert kinds["two labels"]["examples"][0][0] == "train/cat/03.png (train, cat)"
    assert "train/dog/again.jpg (train, dog)" in kinds["two labels"]["examples"][0]
    assert kinds["copies"]["count"] == 1
    assert "leakage" not in kinds


def test_dark_and_blurred_pictures_by_cleanvision(folder):
    pytest.importorskip("cleanvision")
    photo(900).point(lambda v: v // 40).save(folder / "train" / "cat" / "night.png")
    photo(8, grain=8).save(folder / "train" / "dog" / "soft.png")  # no edge in it
    kinds = found(folder)
    assert kinds["too dark"]["examples"] == [["train/cat/night.png (train, cat)"]]
    assert any("soft.png" in e[0] for e in kinds["blurred"]["examples"])


def test_an_outlier_by_cleanlab(tmp_path):
    pytest.importorskip("cleanlab")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    x[7] = 40
    np.savez(tmp_path / "x.npz", X=x, y=np.arange(120) % 2)
    (outlier,) = checks(open_samples(str(tmp_path / "x.npz")))
    assert outlier["kind"] == "outliers"
    assert outlier["examples"][0] == ["7 (train, 1)"]


def test_texts_that_differ_in_spaces_and_case_are_copies(tmp_path):
    rows = [f"number {i} of many words,{'ab'[i % 2]},train" for i in range(30)]
    rows += ["Number  3 of MANY words,a,test"]
    (tmp_path / "x.csv").write_text("\n".join(["text,label,split", *rows]), encoding="utf-8")
    kinds = {f["kind"]: f for f in checks(open_samples(str(tmp_path / "x.csv")))}
    assert kinds["leakage"]["count"] == kinds["two labels"]["count"] == 1


def test_texts_that_share_no_word_have_no_outliers(tmp_path):
    rows = [f"{'abcdefghijklmnopqrstuvwxyz'[i] * 3},{'ab'[i % 2]}" for i in range(26)]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    assert checks(open_samples(str(tmp_path / "x.csv"))) == []


def test_unequal_classes_are_said(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", X=x, y=np.array([0] * 56 + [1] * 4))
    kinds = {f["kind"]: f for f in checks(open_samples(str(tmp_path / "x.npz")))}
    assert "4 samples of 1, 56 of 0" in kinds["imbalance"]["text"]


def test_a_missing_tool_is_said_in_one_line(folder, monkeypatch):
    monkeypatch.setattr(ordinary, "find_spec", lambda name: None)
    said = [f["text"] for f in checks(open_samples(str(folder)))]
    assert [t for t in said if "CleanVision is not installed (pip install 'sebra[checks]')" in t]
    assert [t for t in said if "cleanlab is not installed" in t]
