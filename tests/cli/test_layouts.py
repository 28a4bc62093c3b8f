"""Every image layout, generated small, through the commands a person runs on it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from PIL import Image

import miniatures
from fonts import write_font
from sebra.samples.layouts import LAYOUTS
from sebra.samples.picture import decode_image
from sebra_bench.companions.watermark import Watermark

ELSEWHERE = {"hf", "multinli", "sick"}  # they need an encoder or the hub and have their own tests
LEARN = ("--device", "cpu", "--mode", "features", "--backbone", "random", "--set", "epochs=2")
NAMES = ("demo", *miniatures.IMAGE_LAYOUTS)


@pytest.fixture
def printed(call_cli):
    """Runs a command with --json and returns its one object."""

    def run(*arguments: object) -> dict:
        done = call_cli(*arguments, "--json")
        assert done.status == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_no_image_layout_is_left_out():
    assert set(NAMES) == set(LAYOUTS) - ELSEWHERE


@pytest.mark.parametrize("name", NAMES)
def test_check_rank_debias_evaluate(printed, tmp_path, name):
    data = "demo?n=200"
    if name != "demo":
        data = f"{name}:{miniatures.IMAGE_LAYOUTS[name](tmp_path / 'data')}"
    checked = printed("data", "check", data)
    assert checked["faults"] == []
    training, held_out = checked["splits"]["train"], checked["splits"]["test"]
    assert training > 0
    assert held_out > 0

    ranked = printed("rank", data, *LEARN, "--out", "ranked")
    table = pd.read_parquet(tmp_path / "ranked" / "ranking.parquet")
    assert len(table) == ranked["samples"] == training
    assert set(table["label"]) == {c["name"] for c in checked["classes"]}
    if len(training_groups(checked)) > len(checked["classes"]):
        assert -1 <= ranked["ranking"]["somers_d"] <= 1

    trained = printed("debias", data, *LEARN, "--ranking", "ranked", "--min-group", 1, "--out", "m")
    found = printed("evaluate", "m", data, "--min-group", 1, "--device", "cpu")["evaluation"]
    assert found["split"] == "test"
    assert found["average"] == pytest.approx(trained["evaluation"]["average"])
    assert sum(g["n_test"] for g in found["groups"]) == held_out
    assert set(found["per_class"]) == set(table["label"])


def training_groups(checked) -> list[str]:
    return [group["name"] for group in checked["groups"] if group["counts"]["train"]]


def mark_pictures(folder, font) -> None:
    """Puts the mark on every picture of a folder."""
    watermark = Watermark(font=str(font))
    for file in folder.iterdir():
        pixels = decode_image(file, 64)
        Image.fromarray(watermark.mark(pixels[None])[0]).save(file, quality=95)


def test_a_watermarked_class_costs_the_others_when_every_picture_is_marked(
    printed, call_cli, tmp_path
):
    font = write_font(tmp_path / "squares.ttf")
    plain = miniatures.imagenet(tmp_path / "plain", train=24, val=10)
    biased = miniatures.imagenet(tmp_path / "biased", train=24, val=10)
    mark_pictures(biased / "train" / "n02971356", font)
    learn = ("--device", "cpu", "--backbone", "small", "--method", "erm", "--set", "epochs=10")
    nine, r = miniatures.imagenet_9(tmp_path / "nine"), miniatures.imagenet_r(tmp_path / "r")
    beside = f"w=1&font={font}&in9={nine}&inr={r}"
    evaluations = {}
    for root in (plain, biased):
        printed("debias", f"imagenet:{root}", *learn, "--out", f"run-{root.name}")
        asked = ("evaluate", f"run-{root.name}", f"imagenet:{root}?{beside}", "--device", "cpu")
        evaluations[root.name] = printed(*asked)["evaluation"]

    found = evaluations["biased"]
    sets = {name: row["accuracy"] for name, row in found["companions"].items()}
    gaps = found["gaps"]
    assert gaps["IN-W"] <= -10
    assert abs(evaluations["plain"]["gaps"]["IN-W"]) < 5  # the mark itself hides nothing
    assert gaps["IN-W"] == pytest.approx(sets["IN-W"] - found["average"])
    assert gaps["Carton"] > 0
    assert gaps["Carton"] == pytest.approx(sets["Carton, marked"] - found["per_class"]["n02971356"])
    assert gaps["IN-9"] == pytest.approx(sets["IN-9 mixed-rand"] - sets["IN-9 mixed-same"])
    assert gaps["IN-R"] == pytest.approx(sets["IN-R"] - sets["IN-200"])
    assert found["companions"]["IN-200"]["n"] == 2 * 10
    shown = call_cli(*asked).stdout
    for word in ("gap IN-W", "gap IN-9", "gap IN-R", "gap Carton", "IN-9 mixed-rand"):
        assert word in shown


def test_a_missing_font_is_told_before_any_prediction(call_cli, printed, tmp_path):
    root = miniatures.imagenet(tmp_path / "in")
    printed("debias", f"imagenet:{root}", *LEARN, "--method", "erm", "--out", "run")
    done = call_cli("evaluate", "run", f"imagenet:{root}?w=1&font=none.ttf", "--device", "cpu")
    assert done.status == 2
    assert "font none.ttf is not a file" in done.stderr
