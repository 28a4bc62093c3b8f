"""Studies: each leaves a figure that can be read in grey and the table behind it, once."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

import miniatures
from benches import folder
from sebra.errors import UsageError
from sebra.workflows.prepared import Source
from sebra_bench.bench import study
from sebra_bench.plan import BenchOptions
from sebra_bench.studies.curves import at_epochs, over_seeds, shown_epochs
from sebra_bench.studies.symmetry import shortcut_groups

RANKERS_ALONE = ("ablation", "beta", "dynamics", "symmetry")


def quick(*more, seeds=1):
    return BenchOptions((), seeds, None, ("rank.epochs=2", "rank.enough=0", *more))


@pytest.fixture
def cars(tmp_path):
    data = f"urbancars:{miniatures.urbancars(tmp_path / 'cars', aligned=8)}"
    return Source(data, device="cpu", backbone="small")


def figures_in(path):
    return (path / "rows.jsonl").read_bytes()


def check(run, path):
    """Something is drawn that is dark in grey; the CSV holds what the table says it does."""
    from PIL import Image

    drawn = [p for p in run.figures if p.suffix == ".png"]
    assert drawn
    for file in drawn:
        assert np.asarray(Image.open(file).convert("L")).min() < 60
    text = (path / "table.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == sum(len(table.figures) for table in run.tables) >= 2
    return rows


@pytest.mark.parametrize("name", [*RANKERS_ALONE, "cost"])
def test_a_study_leaves_figure_and_table_and_repeats_no_run(name, features, tmp_path, monkeypatch):
    from sebra_bench.studies import beta

    monkeypatch.setattr(beta, "BETAS", (0.8, 1.25))
    options = quick("epochs=2") if name == "cost" else quick()
    check(study(name, features, options, folder(tmp_path)), tmp_path / "run")
    before = figures_in(tmp_path / "run")
    assert before
    study(name, features, options, folder(tmp_path))
    assert figures_in(tmp_path / "run") == before


def test_dynamics_follow_every_cue_of_both_trainings(features, tmp_path):
    run = study("dynamics", features, quick(seeds=2), folder(tmp_path))
    rows = check(run, tmp_path / "run")
    assert {r["training"] for r in rows} == {"sebra", "erm"}
    assert {r["seed"] for r in rows} == {"0", "1"}
    assert all(0 <= float(r["cue"]) <= 100 and 0 <= float(r["label"]) <= 100 for r in rows)
    erm = [float(r["epoch"]) for r in rows if r["training"] == "erm" and r["seed"] == "0"]
    assert erm == [1.0, 2.0]
    sebra = [float(r["epoch"]) for r in rows if r["training"] == "sebra" and r["seed"] == "0"]
    assert sebra == sorted(sebra)
    assert sebra[-1] <= 2.0 + 1e-6


def test_symmetry_has_a_curve_for_every_kind_of_sample(cars, tmp_path):
    rows = check(study("symmetry", cars, quick(), folder(tmp_path)), tmp_path / "run")
    kinds = ("with every shortcut", "only background", "only object", "with none")
    assert all(float(rows[0][kind]) > 0 for kind in kinds)


def test_kinds_of_samples_go_by_the_shortcuts_they_have(cars):
    from sebra.samples.open import open_samples

    samples = open_samples(cars.data)
    kinds = shortcut_groups(samples)
    train = samples.take(samples.rows("train"))
    background, thing = (train.attributes[n] for n in ("background", "object"))
    for name, members in kinds.items():
        labels = train.labels[members]
        b, o = background.codes[members] == labels, thing.codes[members] == labels
        expected = {
            "with every shortcut": (True, True),
            "only background": (True, False),
            "only object": (False, True),
            "with none": (False, False),
        }[name]
        assert set(b.tolist()) == {expected[0]}
        assert set(o.tolist()) == {expected[1]}
    assert sum(m.sum() for m in kinds.values()) == len(train)


def test_galleries_show_both_ends_and_the_neurons(cars, tmp_path):
    run = study("qualitative", cars, quick(), folder(tmp_path))
    rows = check(run, tmp_path / "run")
    assert [p.name for p in run.figures] == ["qualitative.png", "neurons.png"]
    ends = [r for r in rows if r["end"]]
    assert {(r["class"], r["end"]) for r in ends} == {
        (c, e) for c in ("urban", "country") for e in ("top", "bottom")
    }
    assert all(f"obj-{r['class']}_bg-{r['background']}" in r["id"] for r in rows)
    top = {r["id"] for r in ends if r["end"] == "top"}
    assert not top & {r["id"] for r in ends if r["end"] == "bottom"}
    neurons = {(r["class"], r["neuron"]) for r in rows if r["neuron"]}
    assert len(neurons) == 10  # five for each class
    before = figures_in(tmp_path / "run")
    study("qualitative", cars, quick(), folder(tmp_path))
    assert figures_in(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("name", "missing", "words"),
    [
        ("dynamics", "cue", "needs attribute columns and a val split"),
        ("symmetry", "cue", "needs attribute columns"),
        ("qualitative", "", "needs pictures"),
    ],
)
def test_data_that_lacks_what_a_study_needs_is_refused(tmp_path, name, missing, words):
    file = miniatures.npz(tmp_path / "x.npz")
    arrays = {k: v for k, v in np.load(file).items() if k != missing}
    np.savez(file, **arrays)
    with pytest.raises(UsageError, match=words):
        study(name, Source(str(file), device="cpu"), quick(), folder(tmp_path))


class Test_curves:
    rows = (
        {"curve": [{"epoch": 1.0, "x": 0.0}, {"epoch": 3.0, "x": 2.0}]},
        {"curve": [{"epoch": 0.5, "x": 1.0}, {"epoch": 2.5, "x": 3.0}, {"epoch": 4.0, "x": 9.0}]},
    )

    def test_a_mean_is_over_all_seeds_at_the_same_epoch(self):
        epochs, mean, deviation = over_seeds(self.rows, "x", step=1.0)
        assert epochs.tolist() == [1.0, 2.0, 3.0]
        assert mean.tolist() == [0.75, 1.75, 3.5]  # of (0, 1.5), (1, 2.5), (2, 5)
        assert deviation[0] == pytest.approx(np.std([0, 1.5], ddof=1))

    def test_tables_have_a_dash_where_not_all_seeds_have_trained(self):
        assert shown_epochs(self.rows) == [1, 2, 3]
        assert at_epochs(self.rows, "x", [1, 2, 4], 2) == {
            "epoch 1": "0.75",
            "epoch 2": "1.75",
            "epoch 4": "–",
        }


@pytest.mark.parametrize("name", ["peel", "robustness"])
def test_data_on_which_nobody_breaks_an_attribute_is_refused_before_the_work(tmp_path, name):
    y = miniatures.features()["y"]
    for cue in (y, np.full(len(y), np.nan)):
        file = miniatures.npz(tmp_path / "x.npz", cue=cue)
        with pytest.raises(
            UsageError, match=r"no class has samples that break|no attribute column"
        ):
            study(name, Source(str(file), device="cpu"), quick(), folder(tmp_path))


@pytest.mark.parametrize(("name", "key"), [("peel", "rank.bogus"), ("noise", "bogus")])
def test_a_setting_that_no_run_of_a_study_has_is_refused(features, tmp_path, name, key):
    options = BenchOptions((), 1, None, (f"{key}=3",))
    with pytest.raises(UsageError, match=r"none of .* has such a setting"):
        study(name, features, options, folder(tmp_path))


def test_a_missing_attribute_is_not_a_broken_one_in_the_curves(tmp_path):
    found = []
    for missing in (0, 100):
        arrays = miniatures.features(n=400)
        cue = arrays["cue"].astype(float)
        cue[:missing] = np.nan
        file = tmp_path / f"{missing}.npz"
        np.savez(file, **(arrays | {"cue": cue}))
        options = BenchOptions((), 1, None, ("rank.epochs=2", "rank.enough=0"))
        study("peel", Source(str(file), device="cpu"), options, folder(tmp_path, str(missing)))
        text = (tmp_path / str(missing) / "table.csv").read_text(encoding="utf-8")
        rows = csv.DictReader(io.StringIO(text))
        found.append(next(float(r["cue"]) for r in rows if r["epoch"] == "1.0"))
    assert found[1] > found[0] - 0.1
