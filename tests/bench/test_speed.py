"""`sebra bench speed`: every section on a small data set, and what its helpers compute."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from sebra.engine.engines import NAMES
from sebra.errors import UsageError
from sebra.runs.folder import RunFolder
from sebra.workflows.prepared import Source
from sebra_bench.speed import run as speed_module
from sebra_bench.speed import whole
from sebra_bench.speed.rates import Line
from sebra_bench.speed.run import SECTIONS, SpeedOptions
from sebra_bench.speed.scale import rank_features, synthetic_features
from sebra_bench.speed.tools import (
    fitted_exponent,
    flops_per_sample,
    reference_module,
    seconds_of,
)

CPU = torch.device("cpu")


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for c, name in enumerate(("dark", "light")):
        folder = tmp_path / "pictures" / name
        folder.mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 120, (32, 32, 3)) + 120 * c
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "pictures"


@pytest.fixture
def own_children():
    """The loader of the reference loop listens to the ends of all processes, also afterwards."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("own_children")
def test_every_section_gives_its_figures(call_cli, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(whole, "COMMANDS", (("debias", "--method", "erm"),))
    short = tmp_path / "short.toml"
    short.write_text('[rank]\nepochs = 2\nresolution = "epoch"\n', encoding="utf-8")
    done = call_cli(
        "bench", "speed", pictures, "--device", "cpu", "--backbone", "small", "--batch", 8,
        "--preset", short,
        "--sections", ",".join(SECTIONS), "--sizes", "200,400", "--large", "300,8,3",
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    speed = found["speed"]
    for name in ("train, rank step", "train, ERM", "select"):
        line = speed[name]
        assert line["over_eager"] == pytest.approx(line["sebra"] / line["eager"])
        assert line["of_peak"] > 0
    for name in (
        "finished ranking",
        "finished ranking, a quarter of the draws",
        "debias epoch",
    ):
        line = speed[name]
        assert line["unit"] == "s"
        assert line["over_reference"] == pytest.approx(line["reference"] / line["sebra"])
    assert "train, streamed from the map" in speed
    frozen = speed["features, frozen"]
    assert frozen["over_eager"] == pytest.approx(frozen["sebra"] / frozen["eager"])
    assert frozen["engine"] in NAMES
    whole_command = speed["command: debias --method erm"]
    phases = whole_command["phases"]
    assert whole_command["sebra"] >= phases["total"] > phases["start"] > phases["evaluate"] > 0
    assert "rank 300 x 8, 3 classes" in speed
    assert found["growth"]["samples"] == [200, 400]
    text = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    assert "finished ranking" in text
    assert json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8")) == found


def test_a_section_that_fails_costs_the_others_nothing(call_cli, pictures, tmp_path):
    done = call_cli(
        "bench", "speed", pictures, "--device", "cpu", "--backbone", "small", "--batch", 8,
        "--sections", "ranking,growth", "--sizes", "200,400", "--out", tmp_path / "run",
        "--set", "epochs=5", "--set", "lr=1e-9", "--set", "resolution=epoch",
    )  # fmt: skip
    assert done.status == 0, done.stderr
    text = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    assert "ranking not measured: no ranking: in 5 epochs" in text
    assert "growth, features" in text


def test_what_is_measured_is_on_disk_before_the_next_section(monkeypatch, pictures, tmp_path):
    def cut_off(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(speed_module, "debias_lines", cut_off)
    options = SpeedOptions(sections=("select", "debias"), batch=8)
    source = Source(str(pictures), device="cpu", backbone="small")
    with pytest.raises(KeyboardInterrupt):
        speed_module.speed(source, options, RunFolder(tmp_path / "run"))
    found = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert list(found["speed"]) == ["select"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sections", "train,sprint"), "--sections: no section 'sprint'"),
        (("--sizes", "many"), "--sizes: 'many'"),
        (("--large", "3,4"), "--large: '3,4'"),
        (("--seeds", "0"), "--seeds"),
        (("--reference", "nowhere.py"), "--reference: no file nowhere.py"),
    ],
)
def test_wrong_options_cost_one_line(call_cli, pictures, options, words):
    done = call_cli("bench", "speed", pictures, "--device", "cpu", "--backbone", "small", *options)
    assert done.status == 2
    assert words in done.stderr


def test_ratios_say_how_many_times_as_fast():
    assert Line("rate", "images/s", ours=300.0).ratio(100.0) == 3.0
    assert Line("time", "s", ours=2.0).ratio(8.0) == 4.0
    assert Line("alone", "s", ours=2.0).ratio(None) is None


def test_the_exponent_of_a_power_law_is_found():
    sizes = [1_000, 10_000, 100_000]
    assert fitted_exponent(sizes, [3e-6 * n**1.2 for n in sizes]) == pytest.approx(1.2)


def test_operations_of_a_linear_layer_are_counted():
    layer = nn.Linear(7, 5, bias=False)
    x = torch.randn(4, 7)
    assert flops_per_sample(layer, x, train=False) == 2 * 7 * 5
    assert flops_per_sample(layer, x, train=True) == 2 * 2 * 7 * 5  # no gradient for the input


def test_the_first_call_does_not_count():
    calls = []

    def work() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            torch.empty(1)

    assert seconds_of(work, CPU, repeats=3) >= 0
    assert len(calls) == 4


def test_synthetic_features_carry_the_cue_that_is_ranked_first():
    values, labels = synthetic_features(600, 16, 3, CPU, np.float32)
    assert values.shape == (600, 16)
    assert set(labels.tolist()) == {0, 1, 2}
    seconds, rounds = rank_features(values, labels, 3, CPU)
    assert seconds > 0
    assert rounds >= 1


def test_no_growth_from_nobody():
    with pytest.raises(UsageError, match="--sizes"):
        SpeedOptions(sizes=(1,))


@pytest.fixture
def reference():
    return reference_module(None)


def plain_pictures(n: int = 20):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 2
    pixels = (rng.integers(0, 100, (n, 16, 16, 3)) + 150 * labels[:, None, None, None]).clip(0, 255)
    return pixels.astype(np.uint8), labels


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(196, 2))


def test_the_reference_ranking_sets_learned_samples_aside(reference):
    pixels, labels = plain_pictures()
    s = reference.Settings(batch=8, epochs=12, lr=0.05, workers=0)
    ranker = reference.Ranker(small_network(), reference.pictures(pixels), labels, s, CPU)
    bucket, score = ranker.rank()
    assert bucket.min() >= 0
    assert ((score >= 0) & (score <= 1)).all()
    learned = bucket < 12
    assert learned.any()
    assert (score[learned] >= 0.75 ** (1 / 1.25) - 1e-6).all()
    assert (ranker.v[torch.from_numpy(learned)] == 0).all()


def test_the_reference_debiasing_lowers_its_loss(reference):
    pixels, labels = plain_pictures()
    bucket = (np.arange(20) // 2) % 3
    s = reference.Settings(batch=10, lr=0.02, workers=0, tau=0.5, gamma=1.0)
    net = small_network()
    debiaser = reference.Debiaser(
        net[:3], net[3], reference.pictures(pixels), labels, bucket, s, CPU
    )
    losses = [debiaser.epoch() for _ in range(8)]
    assert losses[-1] < losses[0]


def test_the_eager_loop_selects_what_the_network_says(reference):
    pixels, labels = plain_pictures(8)
    s = reference.Settings(batch=4)
    net = small_network()
    eager = reference.Eager(net, torch.from_numpy(pixels), torch.from_numpy(labels), s, CPU)
    p = eager.select(2)
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    x = (x / 255 - torch.tensor(reference.MEAN).view(1, 3, 1, 1)) / torch.tensor(
        reference.STD
    ).view(1, 3, 1, 1)
    with torch.no_grad():
        expected = net(x).softmax(1)[torch.arange(8), torch.from_numpy(labels)]
    torch.testing.assert_close(p, expected, atol=0.02, rtol=0.02)  # bf16


def test_the_quick_preset_is_what_is_measured():
    from sebra.ranking.sebra import SebraConfig
    from sebra.runs.config import settle
    from sebra_bench.speed.ranking import quick

    def config(preset, overrides=()):
        return settle(SebraConfig, "rank", "sebra", "finetune", preset, overrides).config

    paper = config("paper/urbancars")
    assert config("fast/urbancars") == config("paper/urbancars", quick(paper)) != paper


@pytest.mark.parametrize(("usable", "words"), [(True, "in use"), (False, "not to be had")])
def test_the_table_of_a_gpu_says_whether_it_had_the_joint_kernels(monkeypatch, usable, words):
    monkeypatch.setattr(speed_module.fusing, "available", lambda: usable)
    table = speed_module._table(speed_module.Found(), Source("x"), torch.device("cuda"))
    assert any(words in remark for remark in table.remarks)
