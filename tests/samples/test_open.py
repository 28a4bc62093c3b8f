"""The door: every form of DATA, options, and one line for every mistake."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.layouts import LAYOUTS, find_layout
from sebra.samples.open import open_samples

FORMS = {
    "folder": lambda p: str(miniatures.folder(p / "d")),
    "splits": lambda p: str(miniatures.split_folder(p / "d")),
    "csv": lambda p: str(miniatures.manifest(p / "d")),
    "parquet": lambda p: str(miniatures.manifest(p / "d", kind="parquet")),
    "text": lambda p: str(miniatures.text_manifest(p / "d")),
    "npz": lambda p: str(miniatures.npz(p / "d" / "x.npz")),
    "arrays": lambda p: str(miniatures.array_folder(p / "d")),
    "urbancars": lambda p: f"urbancars:{miniatures.urbancars(p / 'd')}",
    "bar": lambda p: f"bar:{miniatures.bar(p / 'd')}",
    "celeba": lambda p: f"celeba:{miniatures.celeba(p / 'd')}",
    "cmnist": lambda p: f"cmnist:{miniatures.mnist(p / 'd')}",
    "demo": lambda p: "demo?n=100",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_one_sound_table_twice_the_same(tmp_path, form):
    data = FORMS[form](tmp_path)
    samples, again = open_samples(data), open_samples(data)
    assert samples.source == data
    assert len(set(samples.ids)) == len(samples) > 0
    assert all("\\" not in name and not name.startswith("/") for name in samples.ids)
    assert set(samples.labels) == set(range(len(samples.classes)))
    for attribute in samples.attributes.values():
        assert len(attribute.codes) == len(samples)
        assert attribute.codes.max() < len(attribute.levels)
    assert samples.ids.tolist() == again.ids.tolist()
    assert np.array_equal(samples.labels, again.labels)
    assert np.array_equal(samples.split, again.split)


def test_attributes_are_chosen_and_ordered():
    samples = open_samples("demo?n=100", attributes=["companion", "background"])
    assert list(samples.attributes) == ["companion", "background"]
    with pytest.raises(UsageError, match=r"no column 'colour' .*has: background, companion"):
        open_samples("demo?n=100", attributes=["colour"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "DATA is empty"),
        ("/no/such/place", "no such file or folder"),
        ("urbancars", "urbancars:PATH"),
        ("urbancars:", "urbancars:PATH"),
        ("bar:/no/such/place", "no such folder"),
        ("flowers:/tmp", r"unknown layout 'flowers' \(known: bar, .*urbancars.*\)"),
        ("demo:/tmp", "takes no path"),
        ("demo?colour=red", r"unknown option 'colour' \(known: biases, strength, n, seed\)"),
        ("demo?n=many", "option n must be a whole number, not 'many'"),
        ("demo?strength=x", "option strength must be a number"),
        ("demo?biases=7", "biases must be 0 to 3"),
        ("demo?strength=1.0", "strength must be from 0.5"),
        ("demo?n=3", "n must be 100"),
        ("demo?seed=-1", "seed must not be negative"),
        ("demo?fast", "unknown option 'fast'"),
        ("bar:/tmp?n=1", r"unknown option 'n' \(known: none\)"),
        ("celeba:/tmp?test=all", "test must be balanced or rest"),
        ("cmnist:/tmp?ratio=2", "ratio must be above 0"),
    ],
)
def test_wrong_data_arguments(data, message):
    with pytest.raises(UsageError, match=message) as caught:
        open_samples(data)
    assert "\n" not in str(caught.value)


def test_a_file_of_another_kind(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("hello", encoding="utf-8")
    with pytest.raises(UsageError, match="not a form of DATA"):
        open_samples(str(file))


def test_a_layout_given_a_file(tmp_path):
    file = miniatures.save(tmp_path / "a.png", 0)
    with pytest.raises(UsageError, match="is a file, expected a folder"):
        open_samples(f"bar:{file}")


def test_home_is_expanded(tmp_path, monkeypatch):
    miniatures.bar(tmp_path / "bar")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(open_samples("bar:~/bar")) == 18


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_registered_names_and_modules_agree(name):
    assert find_layout(name).name == name


def test_opening_a_folder_imports_nothing_heavy(tmp_path):
    data = miniatures.folder(tmp_path / "d")
    code = (
        "import sys\nfrom sebra.samples.open import open_samples\n"
        f"open_samples({str(data)!r})\n"
        "print([m for m in ('torch', 'pandas', 'PIL', 'sklearn') if m in sys.modules])"
    )
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
