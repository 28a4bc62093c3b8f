"""Whatever computes a frozen network gives what torch gives, or is not used."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from sebra.engine import engines, features
from sebra.engine.engines import NAMES, TORCH, quickest
from sebra.engine.features import extract_features
from sebra.engine.networks import NetworkSpec, build
from sebra.engine.patches import View
from sebra.loading.inputs import Inputs
from sebra.samples.table import ImageArray
from sebra_kernels import frozen

CPU = torch.device("cpu")


def raw_images(n: int, side: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (n, side, side, 3)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8).permute(0, 3, 1, 2)


def view(name: str, side: int) -> View:
    made = View(build(NetworkSpec(name, (3, side, side), 2), 0))
    made.look(raw_images(1, side))
    return made.eval()


@pytest.mark.parametrize(
    ("name", "side"),
    [("random", 32), ("resnet18", 96), ("convnext_atto", 64), ("vit_tiny_patch16_224", 224)],
)
def test_openvino_computes_what_torch_computes(name, side):
    pytest.importorskip("openvino")
    module, probe = view(name, side), raw_images(3, side)
    found, run = quickest(module, probe, module.parts)
    assert found.startswith("openvino")
    more = raw_images(5, side)  # the engine is not bound to the number of samples it was made with
    with torch.no_grad():
        expected = module(more)
    for mine, theirs in zip(module.parts(run(more)), module.parts(expected), strict=True):
        same = torch.cosine_similarity(mine.flatten(1), theirs.flatten(1))
        assert float(same.min()) > 0.999


class Sums(nn.Module):
    def forward(self, x):
        return x.float().flatten(2).mean(2)


class Fixed(nn.Module):
    """A trace holds on to the number of samples."""

    def forward(self, x):
        return x.float().flatten(2).mean(2) + torch.arange(len(x)).view(-1, 1)


def agreeing(module, precision):
    return lambda x: module(x) * (1.0 if precision == "f32" else torch.tensor([1.0, 1.0, 0.2]))


def test_the_more_precise_engine_is_taken_where_the_quicker_one_disagrees(monkeypatch, caplog):
    monkeypatch.setattr(frozen, "precisions", lambda: ("bf16", "f32"))
    monkeypatch.setattr(frozen, "compiled", lambda m, x, precision, free: agreeing(m, precision))
    with caplog.at_level(logging.WARNING):
        name, run = quickest(Sums(), raw_images(4, 8), lambda x: (x,))
    assert name == "openvino f32"
    assert "openvino bf16" in caplog.text
    assert len(caplog.records) == 1
    torch.testing.assert_close(run(raw_images(4, 8)), Sums()(raw_images(4, 8)))


def test_torch_is_taken_where_no_engine_agrees(monkeypatch, caplog):
    def fails(*_):
        raise RuntimeError("first\nno such operation")

    monkeypatch.setattr(frozen, "precisions", lambda: ("f32",))
    monkeypatch.setattr(frozen, "compiled", fails)
    with caplog.at_level(logging.WARNING):
        name, run = quickest(Sums(), raw_images(4, 8), lambda x: (x,))
    assert name == TORCH
    assert "no such operation" in caplog.text
    torch.testing.assert_close(run(raw_images(2, 8)), Sums()(raw_images(2, 8)))


def test_an_engine_that_holds_on_to_the_number_of_samples_is_not_used(caplog):
    pytest.importorskip("openvino")
    name, _ = quickest(Fixed(), raw_images(4, 8), lambda x: (x,))
    assert name == TORCH
    assert len(caplog.records) >= 1


def test_parts_are_compared_apart():
    """A small part that disagrees must not hide behind a large one."""
    expected = torch.ones(2, 100)
    found = expected.clone()
    found[:, 0] = -1
    assert engines._cosine(found, expected) > 0.9
    assert engines._cosine(found[:, :1], expected[:, :1]) == pytest.approx(-1)


def many(n: int) -> Inputs:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)
    return Inputs(ImageArray(pixels, np.arange(n)), CPU)


@pytest.mark.parametrize("name", NAMES)
def test_features_of_any_engine_are_found_again_and_never_mixed_up(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "_WORTH", 4)
    spec, inputs = NetworkSpec("random", (3, 16, 16), 2), many(6)
    monkeypatch.setattr(features, "quickest", lambda m, *_: (name, engines.torch_run(m)))
    found = extract_features(spec, None, inputs, "k").pooled.values
    keys = {p.name for p in (tmp_path / "features").iterdir()}
    monkeypatch.setattr(features, "quickest", lambda *_: pytest.fail("computed again"))
    np.testing.assert_array_equal(extract_features(spec, None, inputs, "k").pooled.values, found)
    other = next(n for n in NAMES if n != name)
    monkeypatch.setattr(features, "NAMES", ())
    monkeypatch.setattr(features, "quickest", lambda m, *_: (other, engines.torch_run(m)))
    extract_features(spec, None, inputs, "k")
    assert len({p.name for p in (tmp_path / "features").iterdir()} - keys) == 1


def test_a_few_pictures_do_not_wait_for_an_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "quickest", lambda *_: pytest.fail("an engine was started"))
    found = extract_features(NetworkSpec("random", (3, 16, 16), 2), None, many(8), "k")
    assert found.pooled.values.shape[0] == 8


def test_without_openvino_torch_computes_everything(monkeypatch):
    monkeypatch.setattr(frozen, "find_spec", lambda name: None)
    assert quickest(Sums(), raw_images(3, 8), lambda x: (x,))[0] == TORCH


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        ("print('f32', 2.0)\nprint('bf16', 1.0)", ("bf16", "f32")),
        ("print('f32', 1.0)\nprint('bf16', 2.0)", ("f32", "bf16")),
        ("print('f32', 2.0, flush=True)\nimport os\nos.kill(os.getpid(), 4)", ("f32",)),
        ("raise SystemExit(1)", ("f32",)),
    ],
    ids=["quicker", "slower", "an instruction that is not there", "no answer"],
)
def test_a_precision_is_taken_where_a_process_of_its_own_lived_and_was_quicker(
    trial, expected, tmp_path, monkeypatch
):
    openvino = pytest.importorskip("openvino")
    monkeypatch.setattr(openvino, "Core", lambda: SimpleNamespace(get_property=lambda *_: ["BF16"]))
    (tmp_path / "trial.py").write_text(trial)
    assert frozen._tried(tmp_path / "trial.py") == expected


def test_the_trial_of_this_machine_says_something_of_float32():
    pytest.importorskip("openvino")
    assert "f32" in frozen.precisions()
