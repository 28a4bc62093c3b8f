"""Folders of images."""

import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.open import open_samples


def test_class_folders_are_all_training(tmp_path):
    samples = open_samples(str(miniatures.folder(tmp_path / "d", classes=("zebra", "ant"))))
    assert samples.classes == ("ant", "zebra")
    assert samples.ids[0] == "ant/000.png"
    assert len(samples.rows("train")) == len(samples) == 12


def test_split_folders(tmp_path):
    samples = open_samples(str(miniatures.split_folder(tmp_path / "d")))
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [12, 12, 12]
    row = samples.ids.tolist().index("val/dog/003.jpg")
    assert samples.classes[samples.labels[row]] == "dog"
    assert samples.split[row] == 1


def test_validation_may_be_called_valid(tmp_path):
    root = miniatures.split_folder(tmp_path / "d")
    (root / "val").rename(root / "valid")
    assert len(open_samples(str(root)).rows("val")) == 12


def test_only_images_count_and_none_is_opened(tmp_path):
    root = miniatures.folder(tmp_path / "d", n=2)
    (root / "cat" / "notes.txt").write_text("x", encoding="utf-8")
    (root / "cat" / ".hidden.png").write_bytes(b"")
    (root / ".git").mkdir()
    (root / "cat" / "BROKEN.JPEG").write_bytes(b"not an image")
    (root / "cat" / "deeper").mkdir()
    miniatures.save(root / "cat" / "deeper" / "x.bmp", 1)
    ids = set(open_samples(str(root)).ids)
    assert ids == {
        "cat/000.png",
        "cat/001.png",
        "cat/BROKEN.JPEG",
        "cat/deeper/x.bmp",
        "dog/000.png",
        "dog/001.png",
    }


def test_a_class_may_be_called_train(tmp_path):
    samples = open_samples(str(miniatures.folder(tmp_path / "d", classes=("train", "plane"))))
    assert samples.classes == ("plane", "train")


def test_names_with_spaces_and_other_scripts(tmp_path):
    samples = open_samples(str(miniatures.folder(tmp_path / "d d", classes=("pole vault", "猫"))))
    assert samples.ids[-1] == "猫/005.png"


def _unknown_split(root):
    miniatures.split_folder(root)
    (root / "extra").mkdir()


def _no_train(root):
    miniatures.split_folder(root)
    (root / "train").rename(root / "dev")


def _class_only_in_test(root):
    miniatures.split_folder(root)
    miniatures.save(root / "test" / "cow" / "1.png", 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: root.mkdir(), "no images found"),
        (lambda root: miniatures.save(root / "a.png", 1), "images lie in the folder itself"),
        (lambda root: miniatures.folder(root, classes=("cat",)), "at least two classes, found cat"),
        (lambda root: miniatures.folder(root, n=1), "class 'cat' has 1 training sample,"),
        (_unknown_split, "unknown split 'extra'"),
        (_no_train, "no train folder"),
        (_class_only_in_test, "class 'cow' has 0 training samples"),
    ],
)
def test_wrong_folders(tmp_path, make, message):
    make(tmp_path / "d")
    with pytest.raises(UsageError, match=message):
        open_samples(str(tmp_path / "d"))
