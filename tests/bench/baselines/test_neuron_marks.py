"""The template of neurons to mark: written through the command line, read back, refused."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from miniatures import array_folder, folder
from sebra.errors import UsageError
from sebra_bench.baselines.neuron_marks import read_neurons

SMALL = ("--device", "cpu", "--set", "epochs=2", "--set", "top=3", "--json")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("data") / "pets", ("cat", "<b>dog"), n=8)


def test_template_marks_and_back_through_the_command_line(call_cli, pictures, tmp_path):
    first = call_cli("rank", pictures, "--method", "neurons", "--out", "one", *SMALL)
    assert first.status == 0, first.stderr
    assert "--neurons" in first.stderr
    metrics = json.loads(first.stdout)
    assert any("neurons.html" in note for note in metrics["notes"])
    template = json.loads((tmp_path / "one" / "neurons.json").read_text(encoding="utf-8"))
    assert list(template) == ["<b>dog", "cat"]
    for entries in template.values():
        assert len(entries) == 3
        for entry in entries:
            assert set(entry) == {"neuron", "importance", "spurious", "examples"}
            assert entry["spurious"] is None
            assert len(entry["examples"]) == 8
    page = (tmp_path / "one" / "neurons.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == 2 * 3 * 8
    assert "&lt;b&gt;dog" in page
    assert "<b>dog" not in page

    chosen = template["cat"][2]
    chosen["spurious"] = True
    marks = tmp_path / "marks.json"
    marks.write_text(json.dumps(template), encoding="utf-8")
    second = call_cli(
        "rank", pictures, "--method", "neurons", "--neurons", marks, "--out", "two", *SMALL
    )
    assert second.status == 0, second.stderr
    assert not (tmp_path / "two" / "neurons.json").exists()
    assert "1 of 2 classes" in second.stderr  # none is marked for dogs
    assert "another network" not in second.stderr
    table = pd.read_parquet(tmp_path / "two" / "ranking.parquet")
    cats = table[table["label"] == "cat"].sort_values("rank")
    assert cats["id"].tolist() == chosen["examples"]  # all eight, in the order of that neuron


def test_auto_needs_no_template_and_ranks_the_same(call_cli, tmp_path):
    data = array_folder(tmp_path / "arrays")
    for out, extra in (("a", ()), ("b", ("--neurons", "auto"))):
        done = call_cli("rank", data, "--method", "neurons", "--out", out, *extra, *SMALL)
        assert done.status == 0, done.stderr
    assert (tmp_path / "a" / "neurons.json").is_file()
    assert not (tmp_path / "b" / "neurons.json").exists()
    a, b = (pd.read_parquet(tmp_path / out / "ranking.parquet") for out in "ab")
    pd.testing.assert_frame_equal(a, b)


def test_samples_marked_in_the_report_choose_the_neurons(call_cli, tmp_path):
    data = array_folder(tmp_path / "arrays")
    marks = tmp_path / "marks.csv"
    call_cli("rank", data, "--method", "neurons", "--out", "a", *SMALL)
    table = pd.read_parquet(tmp_path / "a" / "ranking.parquet")
    marked = table[table["label"] == "1"]["id"].head(5)
    marks.write_text(
        "id,mark,label\n" + "".join(f"{i},spurious,\n" for i in marked), encoding="utf-8"
    )
    done = call_cli("rank", data, "--method", "neurons", "--neurons", marks, "--out", "b", *SMALL)
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)["ranking"]
    assert found["neurons_marked"] >= 1
    for text, words in (
        ("id,mark,label\nnobody,spurious,\n", "line 2: no training sample 'nobody'"),
        ("id,mark,label\n", "no sample is marked spurious"),
        ("a,b\n", "--neurons: "),
    ):
        marks.write_text(text, encoding="utf-8")
        done = call_cli("rank", data, "--method", "neurons", "--neurons", marks, *SMALL)
        assert done.status == 2
        assert words in done.stderr
        assert "--exclude" not in done.stderr


ENTRY = {"neuron": 1, "importance": 0.5, "spurious": True, "examples": []}


def test_only_true_marks_count(tmp_path):
    file = tmp_path / "n.json"
    marks = {
        "cat": [ENTRY, {**ENTRY, "neuron": 7}, {**ENTRY, "neuron": 8, "spurious": False}],
        "dog": [{**ENTRY, "spurious": None}],
    }
    file.write_text(json.dumps(marks), encoding="utf-8")
    found = read_neurons(str(file), ("ant", "cat", "dog"))
    assert found.neurons == {1: (1, 7), 2: ()}
    assert found.importance == {(1, 1): 0.5, (1, 7): 0.5}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "an object with a list for each class"),
        ({"cow": [ENTRY]}, r"'cow' is no class of the data \(has: cat, dog\)"),
        ({"cat": {}}, "class 'cat': expected a list"),
        ({"cat": [5]}, "class 'cat', entry 0: expected \"neuron\""),
        ({"cat": [{**ENTRY, "neuron": -1}]}, "expected \"neuron\" with a number from 0"),
        ({"cat": [{**ENTRY, "neuron": True}]}, "expected \"neuron\""),
        ({"cat": [{**ENTRY, "spurious": "yes"}]}, "true, false or null"),
        ({"cat": [{"neuron": 1}]}, "true, false or null"),
        ({"cat": [{**ENTRY, "spurious": None}]}, "no neuron is marked"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_meant_is_refused(tmp_path, content, words):
    file = tmp_path / "n.json"
    text = content if isinstance(content, str) else json.dumps(content)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=words) as refused:
        read_neurons(str(file), ("cat", "dog"))
    assert str(refused.value).startswith(f"--neurons: {file}")


def test_a_missing_file_and_a_missing_neuron_end_with_status_2(call_cli, tmp_path):
    data = array_folder(tmp_path / "arrays")
    absent = call_cli("rank", data, "--method", "neurons", "--neurons", "absent.json", *SMALL)
    assert (absent.status, absent.stdout) == (2, "")
    assert "cannot read absent.json" in absent.stderr
    file = tmp_path / "n.json"
    file.write_text(json.dumps({"1": [{**ENTRY, "neuron": 99}]}), encoding="utf-8")
    done = call_cli("rank", data, "--method", "neurons", "--neurons", file, *SMALL)
    assert done.status == 2
    assert "neuron 99" in done.stderr
