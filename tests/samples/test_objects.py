"""Data in memory ranks like the same data as a folder or a file, whatever holds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

import encoders
import miniatures
import sebra
from sebra.errors import UsageError
from sebra.samples.objects import as_data
from sebra.samples.open import open_samples


def ranked(data, **options):
    settings = {"epochs": 2, "resolution": "epoch"}
    found = sebra.rank(data, device="cpu", settings=settings, **options)
    return found.table.drop(columns="id")


def same(data, as_file, **options):
    pd.testing.assert_frame_equal(ranked(data, **options), as_file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return miniatures.folder(tmp_path_factory.mktemp("pictures"), n=20)


@pytest.fixture(scope="module")
def of_folder(folder):
    return ranked(str(folder))


@pytest.fixture
def files(folder):
    paths = sorted(folder.rglob("*.png"))
    return paths, [p.parent.name for p in paths]


def test_a_path_and_a_list_of_paths_with_labels(folder, files, of_folder):
    same(folder, of_folder)
    same(files, of_folder)
    same([(str(path), label) for path, label in zip(*files, strict=True)], of_folder)


def test_a_frame_of_paths_with_columns_of_other_names(folder, files, of_folder, monkeypatch):
    monkeypatch.chdir(folder)  # paths are read from where one stands
    paths = [p.relative_to(folder).as_posix() for p in files[0]]
    frame = pd.DataFrame({"file": paths, "animal": files[1], "label": "unused"})
    same(frame, of_folder, columns={"path": "file", "label": "animal"})
    found = open_samples(as_data(frame, {"path": "file", "label": "animal"}))
    assert found.ids.tolist() == paths
    assert list(found.attributes) == ["label_column"]
    assert list(frame.columns) == ["file", "animal", "label"]
    frame.to_csv("animals.csv", index=False)
    same("animals.csv", of_folder, columns={"path": "file", "label": "animal"})
    same("animals.csv?path=file&label=animal", of_folder)


def test_arrays_of_pictures(files, of_folder):
    pixels = np.stack([np.asarray(Image.open(p)) for p in files[0]])
    same((pixels, np.array(files[1])), of_folder)
    tensors = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    same((tensors, files[1]), of_folder)
    with pytest.raises(UsageError, match="leave out a transform"):
        as_data((tensors * 3 - 1, files[1]))


class Pictures(Dataset):
    """A data set of one's own, without files."""

    classes = ("cat", "dog")

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return Image.open(self.paths[i]), self.classes.index(self.paths[i].parent.name)


def test_torch_data_sets_of_pictures(folder, files, of_folder):
    from torchvision.datasets import ImageFolder  # slow to import, for this file's worker alone

    same(Pictures(files[0]), of_folder)
    same(ImageFolder(folder), of_folder)
    assert open_samples(as_data(ImageFolder(folder))).ids[0] == "cat/000.png"


def test_hugging_face_data_sets_and_their_folders(folder, tmp_path, of_folder, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="needs the extra hub")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    found = datasets.load_dataset(
        "imagefolder", data_dir=str(folder), cache_dir=str(tmp_path / "c")
    )
    same(found["train"], of_folder)
    same(found, of_folder)
    renamed = found["train"].rename_columns({"label": "animal", "image": "photo"})
    same(renamed, of_folder, columns={"path": "photo", "label": "animal"})
    for number, data in enumerate((found, found["train"])):
        data.save_to_disk(str(tmp_path / f"saved{number}"))
        same(f"hf:{tmp_path / f'saved{number}'}", of_folder)


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    return (rng.normal(size=(80, 4)) + y[:, None]).astype(np.float32), y


def test_tables_of_numbers(numbers, tmp_path):
    x, y = numbers
    np.savez(tmp_path / "table.npz", X=x, y=y)
    of_file = ranked(str(tmp_path / "table.npz"))
    same((x, y), of_file)
    same((torch.from_numpy(x), torch.from_numpy(y)), of_file)
    same(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), of_file)
    frame = pd.DataFrame(x, columns=["age", "income", "rooms", "visits"])
    same((frame, y), of_file)
    same(frame.assign(bought=y, city="Graz"), of_file, columns={"label": "bought"})
    assert open_samples(as_data((x, y))).name == "data"
    samples = open_samples(as_data(frame.assign(label=y, city="Graz")))
    assert samples.content.names == ("age", "income", "rooms", "visits")
    assert list(samples.attributes) == ["city"]


def test_texts(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="needs the extra hub")
    backbone = str(encoders.tiny(tmp_path / "tiny"))
    texts = [f"a {('man', 'dog')[i % 2]} is {encoders.WORDS[i % 19]}" for i in range(40)]
    labels = [("no", "yes")[i % 2] for i in range(40)]
    frame = pd.DataFrame({"text": texts, "label": labels})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    of_file = ranked(str(tmp_path / "texts.csv"), backbone=backbone)
    same(frame, of_file, backbone=backbone)
    same((texts, labels), of_file, backbone=backbone)
    other = frame.rename(columns={"text": "review", "label": "stars"})
    same(other, of_file, backbone=backbone, columns={"text": "review", "label": "stars"})
    same(datasets.Dataset.from_pandas(frame), of_file, backbone=backbone)


def test_splits_by_name(numbers, files):
    frame = pd.DataFrame({"path": files[0], "label": files[1]})
    samples = open_samples(as_data({"train": frame[::2], "validation": frame[1::2]}))
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [20, 20, 0]


def test_the_same_data_is_stored_once(numbers):
    first = as_data(numbers)
    stamp = (Path(first) / "X.npy").stat().st_mtime_ns
    assert as_data(numbers) == first
    assert (Path(first) / "X.npy").stat().st_mtime_ns == stamp
    assert as_data((numbers[0], 1 - numbers[1])) != first


@pytest.mark.parametrize("wrong", [3, [1, 2], object(), (1,)])
def test_anything_else_is_refused_in_one_line(wrong):
    with pytest.raises(UsageError, match="DATA"):
        as_data(wrong)


def test_a_wrong_column_is_named():
    frame = pd.DataFrame({"text": ["a", "b"], "y": [0, 1]})
    with pytest.raises(UsageError, match=r"no column 'z' \(columns: text, y\)"):
        as_data(frame, {"label": "z"})
    with pytest.raises(UsageError, match="no column is called 'colour'"):
        as_data(frame, {"colour": "y"})
    with pytest.raises(UsageError, match=r"name yours as in x.csv\?label=species"):
        open_samples(as_data(frame))


def test_a_model_takes_a_folder_a_frame_and_shows_itself(folder, files, numbers):
    from torchvision.datasets import ImageFolder

    model = sebra.debias(folder, method="erm", settings={"epochs": 2}, device="cpu")
    np.testing.assert_array_equal(model.predict(str(folder)), model.predict(files[0]))
    assert repr(model).startswith("Model(random + linear, takes pictures (3,")
    assert "classes: cat, dog)" in repr(model)
    assert "<td>erm</td>" in model._repr_html_()
    x, y = numbers
    of_numbers = sebra.debias((x, y), method="erm", settings={"epochs": 2}, device="cpu")
    np.testing.assert_array_equal(of_numbers.predict(pd.DataFrame(x)), of_numbers.predict(x))
    ranking = sebra.rank((x, y), device="cpu")
    assert repr(ranking).startswith("Ranking(80 samples, 2 classes, 0 patterns")
    splits = {"train": ImageFolder(folder), "test": Pictures(files[0])}
    assert sebra.evaluate(model, splits).average > 0


def test_an_audit_of_a_frame_writes_the_report(numbers, tmp_path):
    frame = pd.DataFrame(numbers[0]).assign(label=numbers[1])
    sebra.audit(frame, tmp_path / "report.html", device="cpu")
    assert "</html>" in (tmp_path / "report.html").read_text()
