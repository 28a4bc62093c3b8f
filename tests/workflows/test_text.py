"""Text through every command: ranked, debiased, evaluated, asked; in both modes."""

from __future__ import annotations

import csv
import json
import re
from importlib.util import find_spec

import numpy as np
import pytest

import encoders
import miniatures
from sebra.debiasing.model import Model
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.workflows.evaluate import evaluate_model
from sebra_tools.predict import predict

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra text")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return encoders.tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return f"sick:{miniatures.sick(tmp_path_factory.mktemp('sick'))}"


def figures(done):
    assert done.status == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("method", ["sebra", "erm", "random"])
def test_rank_says_how_the_order_goes_with_the_attribute_class_by_class(
    call_cli, backbone, data, method
):
    arguments = ["--backbone", backbone, "--mode", "features", "--device", "cpu"]
    done = call_cli("rank", data, *arguments, "--method", method, "--out", method, "--json")
    found = figures(done)
    assert set(found["ranking"]["per_class"]) == {"contradiction", "entailment", "neutral"}
    assert found["samples"] == 48
    again = figures(call_cli("evaluate", method, data, "--device", "cpu", "--json"))
    assert again["ranking"]["per_class"] == found["ranking"]["per_class"]


@pytest.mark.parametrize("mode", ["features", "finetune"])
def test_a_model_of_text_is_trained_evaluated_and_asked(call_cli, backbone, tmp_path, data, mode):
    arguments = ["--backbone", backbone, "--mode", mode, "--device", "cpu", "--json"]
    settings = ["--set", "epochs=3", "--set", "flip=true", "--set", "crop=0.5"]
    done = call_cli("debias", data, *arguments, "--method", "erm", "--out", "run", *settings)
    found = figures(done)["evaluation"]
    assert found["split"] == "test"
    assert sum(group["n_test"] for group in found["groups"]) == 48
    again = figures(call_cli("evaluate", "run", data, "--device", "cpu", "--json"))
    assert again["evaluation"]["average"] == pytest.approx(found["average"], abs=2.1)
    model = Model.load(tmp_path / "run", "cpu")
    assert model.tokeniser is not None
    pairs = [("a man is running", "the man is not running"), ("a dog is eating", "no dog")]
    both = model.probabilities(pairs)
    assert both.shape == (2, 3)
    np.testing.assert_allclose(model.probabilities(pairs[1:]), both[1:], atol=1e-4)
    assert set(model.predict(pairs)) <= set(model.classes)
    listed = call_cli("predict", "run", data, "--device", "cpu", "--out", "answers.csv")
    assert listed.status == 0, listed.stderr
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 144


def test_predict_takes_a_manifest_of_the_same_kind_only(call_cli, backbone, tmp_path, data):
    arguments = ["--backbone", backbone, "--mode", "features", "--device", "cpu"]
    done = call_cli(
        "debias", data, *arguments, "--method", "erm", "--out", "run", "--set", "epochs=1"
    )
    assert done.status == 0, done.stderr
    model = Model.load(tmp_path / "run", "cpu")
    table = miniatures.text_manifest(tmp_path / "new")
    assert len(predict(model, str(table)).rows()) == 8
    single = tmp_path / "single.csv"
    single.write_text("text,label\na,x\nb,y\nc,x\nd,y\n", encoding="utf-8")
    for wrong, message in {
        str(single): "single texts, but the model takes pairs",
        str(miniatures.npz(tmp_path / "x.npz")): "holds no text, the model takes text",
        str(miniatures.folder(tmp_path / "photos")): "holds no text, the model takes text",
    }.items():
        with pytest.raises(UsageError, match=message):
            predict(model, wrong)
    refused = call_cli("export", "run", "--format", "onnx")
    assert refused.status == 2
    assert "takes text" in refused.stderr


def test_a_manifest_of_single_texts(call_cli, backbone, tmp_path):
    lines = ["text,label,split,tone"]
    for i in range(60):
        word, tone = (("red", "loud"), ("blue", "calm"))[i % 2]
        split = ("train", "train", "val", "test")[i // 2 % 4]
        lines.append(
            f"the {word} guitar is {('playing', 'running')[i % 3 % 2]},{word},{split},{tone}"
        )
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ["--backbone", backbone, "--device", "cpu", "--json", "--method", "erm"]
    settings = ["--set", "epochs=30", "--set", "lr=0.01"]
    found = figures(call_cli("debias", "t.csv", *arguments, "--out", "run", *settings))
    assert found["evaluation"]["average"] == 100
    model = Model.load(tmp_path / "run", "cpu")
    assert model.predict(["the red guitar", "the blue guitar"]).tolist() == ["red", "blue"]
    scores = evaluate_model(model, open_samples("t.csv"))
    assert scores[1].average == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--image-size", "32"], "--image-size: .* holds text"),
        (["--weights", "x.safetensors"], "--weights: .* holds text"),
        (["--mode", "features", "--weights", "none"], "features need pretrained weights"),
        (["--backbone", "./nowhere"], "--backbone ./nowhere: no such folder"),
        ([], "SEBRA_OFFLINE=1 forbids the hub"),
    ],
)
def test_options_that_do_not_fit_text_cost_one_line(call_cli, data, options, message):
    done = call_cli("rank", data, "--device", "cpu", *options)
    assert done.status == 2
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1
    assert re.search(message, lines[0])
