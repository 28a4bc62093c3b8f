"""Hub data sets, read from local folders of the same shape: streamed, stored, read again."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import ImageFiles, Texts
from sebra_bench.layouts import hub

pytestmark = pytest.mark.skipif(find_spec("datasets") is None, reason="needs the extra hub")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.fixture
def pictures(tmp_path):
    """A folder that `datasets` reads as `imagefolder`."""
    return miniatures.split_folder(tmp_path / "pictures", n=4)


def jsonl(folder, split, rows):
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(json.dumps, rows)) + "\n"
    (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


@pytest.fixture
def pairs(tmp_path):
    folder = tmp_path / "pairs"
    for split in ("train", "validation", "test"):
        rows = [
            {
                "premise": f"a {i}",
                "hypothesis": f"b {i}",
                "label": "yn"[i % 2],
                "genre": "fg"[i % 2],
            }
            for i in range(8)
        ]
        jsonl(folder, split, rows)
    return folder


def test_images_keep_their_bytes_and_their_classes(pictures):
    samples = open_samples(f"hf:{pictures}")
    assert samples.classes == ("cat", "dog")
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [8, 8, 8]
    assert isinstance(samples.content, ImageFiles)
    stored = sorted(path.read_bytes() for path in samples.content.paths)
    assert stored == sorted(path.read_bytes() for path in pictures.rglob("*.jpg"))
    for path, label in zip(samples.content.paths, samples.labels, strict=True):
        source = next(p for p in pictures.rglob("*.jpg") if p.read_bytes() == path.read_bytes())
        assert source.parent.name == samples.classes[label]


def test_pairs_of_sentences_and_attributes(pairs):
    samples = open_samples(f"hf:{pairs}")
    assert isinstance(samples.content, Texts)
    assert samples.content.first[:2] == ("a 0", "a 1")
    assert samples.content.second is not None
    assert samples.content.second[9] == "b 1"
    assert samples.classes == ("n", "y")
    assert list(samples.attributes) == ["genre"]
    assert samples.ids[0] == "train/0"


def test_more_rows_than_a_shard_and_a_limit(pairs, monkeypatch):
    whole = open_samples(f"hf:{pairs}?test=test")
    monkeypatch.setattr(hub, "SHARD_ROWS", 3)
    pieces = open_samples(f"hf:{pairs}")
    np.testing.assert_array_equal(whole.ids, pieces.ids)
    np.testing.assert_array_equal(whole.labels, pieces.labels)
    assert whole.content == pieces.content
    assert [len(open_samples(f"hf:{pairs}?limit=5").rows(s)) for s in ("train", "val")] == [5, 5]


def test_what_was_fetched_is_read_from_the_cache(monkeypatch, pairs):
    class Feature:
        names = ["n", "y"]

    class Value(Feature):
        """Named as `datasets` names the type of a plain column."""

    class ClassLabel(Feature):
        """Named as `datasets` names the type of a label column."""

    class Stream(list):
        features = {"text": Value(), "label": ClassLabel()}

    asked = []

    def streams(name, options):
        asked.append(name)
        rows = [{"text": f"row {i}", "label": i % 2 if i < 8 else -1} for i in range(10)]
        return {"train": Stream(rows)}

    monkeypatch.setattr(hub, "load_streams", streams)
    first = open_samples("hf:someone/sentences")
    again = open_samples("hf:someone/sentences")
    assert asked == ["someone/sentences"]
    assert first.content == again.content
    assert len(first) == 8  # labels of -1 are hidden ones
    assert first.source == "hf:someone/sentences"
    assert first.name == "sentences"
    open_samples("hf:someone/sentences?limit=4")
    assert len(asked) == 2


def test_a_broken_stream_leaves_nothing_behind(monkeypatch, tmp_path, pairs):
    def broken(row, columns):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hub, "parse_row", broken)
        with pytest.raises(KeyboardInterrupt):
            open_samples(f"hf:{pairs}")
    assert list((tmp_path / "cache" / "hub").iterdir()) == []
    assert len(open_samples(f"hf:{pairs}")) == 24


def test_a_changed_local_folder_is_read_again(pairs):
    assert len(open_samples(f"hf:{pairs}")) == 24
    rows = [
        {"premise": "x", "hypothesis": "y", "label": "yn"[i % 2], "genre": "f"} for i in range(4)
    ]
    jsonl(pairs, "test", rows)
    assert len(open_samples(f"hf:{pairs}").rows("test")) == 4


def test_offline_forbids_the_hub_in_one_line(monkeypatch):
    monkeypatch.setenv("SEBRA_OFFLINE", "1")
    with pytest.raises(UsageError, match="SEBRA_OFFLINE=1 forbids fetching it") as caught:
        open_samples("hf:someone/something")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?train=nothing", "no split 'nothing' for option train"),
        ("?label=nothing", "no column 'nothing'"),
        ("?colour=1", "unknown option 'colour'"),
    ],
)
def test_wrong_options_are_named(pairs, query, message):
    with pytest.raises(UsageError, match=message):
        open_samples(f"hf:{pairs}{query}")


def test_columns_that_cannot_be_found_are_asked_for(tmp_path):
    jsonl(tmp_path / "odd", "train", [{"words": f"w {i}", "answer": "ab"[i % 2]} for i in range(6)])
    with pytest.raises(UsageError, match=r"name one with \?image=… or \?text=… .*words, answer"):
        open_samples(f"hf:{tmp_path / 'odd'}")
    with pytest.raises(UsageError, match=r"no label column found"):
        open_samples(f"hf:{tmp_path / 'odd'}?text=words")
    samples = open_samples(f"hf:{tmp_path / 'odd'}?text=words&label=answer")
    assert samples.classes == ("a", "b")
    assert "hf: give the name" in _refusal("hf:")


def _refusal(data):
    with pytest.raises(UsageError) as caught:
        open_samples(data)
    return str(caught.value)


def test_numbers_alone_are_features(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    x = np.random.default_rng(0).normal(size=(12, 2))
    rows = {"wide": x[:, 0], "high": x[:, 1], "kind": [i % 2 for i in range(12)]}
    kinds = {
        "wide": Value("float64"),
        "high": Value("float64"),
        "kind": ClassLabel(names=["a", "b"]),
    }
    data = Dataset.from_dict(rows, features=Features(kinds))
    data.save_to_disk(str(tmp_path / "saved"))
    samples = open_samples(f"hf:{tmp_path / 'saved'}")
    assert samples.classes == ("a", "b")
    assert samples.content.names == ("wide", "high")
    np.testing.assert_allclose(samples.content.values[samples.content.rows], x, rtol=1e-6)
