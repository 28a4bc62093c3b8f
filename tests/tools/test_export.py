"""An exported model gives the same probabilities as the model it was made from."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from sebra.debiasing.model import Model, assemble
from sebra.engine.networks import LINEAR, SMALL, NetworkSpec, build
from sebra.errors import UsageError
from sebra_tools import export as exporting
from sebra_tools.export import export

CLASSES = ("cat", "dog", "zebra crossing")


def shaken(spec):
    """A network whose every layer matters: fresh ones have a last layer of zeros."""
    network = build(spec, 0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network.eval()


def images_model():
    spec = NetworkSpec(SMALL, (3, 16, 16), 3)
    return Model(shaken(spec), CLASSES, (spec,))


def features_model():
    spec = NetworkSpec(LINEAR, (7,), 3, hidden=5)
    return Model(shaken(spec), CLASSES, (spec,))


def stacked_model():
    backbone = NetworkSpec(SMALL, (3, 16, 16), 1)
    body = shaken(backbone)
    top = NetworkSpec(LINEAR, (body.width,), 3, heads=2)
    return Model(assemble([body, shaken(top)]), CLASSES, (backbone, top))


@pytest.mark.parametrize("make", [images_model, features_model, stacked_model])
def test_onnx_agrees_with_the_model_for_any_batch(make, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = make()
    found = export(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    rng = np.random.default_rng(0)
    for n in (1, 5):
        if len(model.inputs) == 3:
            content = rng.integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)
            given = np.ascontiguousarray(content.transpose(0, 3, 1, 2))
        else:
            content = given = rng.normal(size=(n, 7)).astype(np.float32)
        (answer,) = session.run(None, {found["input"]["name"]: given})
        expected = model.probabilities(content)
        assert expected.std() > 0.01  # not a constant, which anything would match
        np.testing.assert_allclose(answer, expected, atol=1e-4)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(CLASSES)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_another_format_and_a_missing_extra_are_named(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="'tflite' is not one of onnx"):
        export(features_model(), tmp_path / "x", "tflite")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"needs onnx and onnxscript; pip install 'sebra\[export\]"
    ):
        export(features_model(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_into_the_run(call_cli, tmp_path):
    pytest.importorskip("onnxscript")
    features_model().save(tmp_path / "run")
    done = call_cli("export", tmp_path / "run", "--json")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["classes"] == list(CLASSES)
    assert found["input"] == {"name": "input", "type": "float32", "shape": ["batch", 7]}
    assert (tmp_path / "run" / "model.onnx").is_file()
    assert call_cli("export", tmp_path / "nothing").status == 2
