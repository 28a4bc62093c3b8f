"""Whatever computes a frozen network gives what torch gives, or is not used."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from frozen_features import extract_features
from sebra.engine import engines, features
from sebra.engine.engines import NAMES, ROUNDED, TORCH, quickest
from sebra.engine.features import Frozen
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
    yield lambda x: module(x) * (1.0 if precision == "f32" else torch.tensor([1.0, 1.0, 0.2]))


def test_the_first_form_of_an_engine_that_agrees_is_taken(monkeypatch, caplog):
    def forms(module, *_):
        for wrong in (0.2, 1.0, 3.0):
            yield lambda x, wrong=wrong: module(x) * torch.tensor([1.0, 1.0, wrong])

    monkeypatch.setattr(frozen, "precisions", lambda: ("int8", "f32"))
    monkeypatch.setattr(frozen, "compiled", forms)
    name, run = quickest(Sums(), raw_images(4, 8), lambda x: (x,))
    assert (name, caplog.records) == ("openvino int8", [])
    torch.testing.assert_close(run(raw_images(4, 8)), Sums()(raw_images(4, 8)))


def test_only_engines_that_are_asked_for_are_tried(monkeypatch):
    monkeypatch.setattr(frozen, "precisions", lambda: ("int8", "f32"))
    monkeypatch.setattr(frozen, "compiled", lambda m, x, precision, free: agreeing(m, "f32"))
    asked = [("openvino f32", TORCH), (TORCH,), ()]
    found = [quickest(Sums(), raw_images(4, 8), lambda x: (x,), names=names)[0] for names in asked]
    assert found == ["openvino f32", TORCH, TORCH]


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
    monkeypatch.setattr(features, "_FITS", 4)
    spec, inputs = NetworkSpec("random", (3, 16, 16), 2), many(6)
    monkeypatch.setattr(features, "quickest", lambda m, *_: (name, engines.torch_run(m)))
    found = extract_features(spec, None, inputs, "k").pooled.values
    keys = {p.name for p in (tmp_path / "features").iterdir()}
    monkeypatch.setattr(features, "quickest", lambda *_: pytest.fail("computed again"))
    np.testing.assert_array_equal(extract_features(spec, None, inputs, "k").pooled.values, found)
    other = next(n for n in NAMES if n != name)
    monkeypatch.setattr(features, "NAMES", (other,))
    monkeypatch.setattr(features, "quickest", lambda m, *_: (other, engines.torch_run(m)))
    extract_features(spec, None, inputs, "k")
    assert len({p.name for p in (tmp_path / "features").iterdir()} - keys) == 1


def test_the_engine_of_the_first_content_computes_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "_WORTH", 4)
    asked = []

    def chosen(module, probe, parts, free, names):
        asked.append((len(probe), names))
        return names[0], engines.torch_run(module)

    monkeypatch.setattr(features, "quickest", chosen)
    spec, train, val = NetworkSpec("random", (3, 16, 16), 2), many(6), many(300)
    for _ in range(2):  # the second time training features are at hand
        made = Frozen(spec, None, train, "train", False)
        made.features(train, "train")
        made.features(val, "val")
    assert asked == [(6, NAMES[1:])]  # too few to fit eight bits to
    other = Frozen(spec, None, train, "train", False)
    other.features(train, "train")
    other.features(val, "another")
    assert asked[1:] == [(6, (NAMES[1],))]


def test_what_eight_bits_give_belongs_to_what_they_were_fitted_to(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "_WORTH", 4)
    monkeypatch.setattr(features, "_FITS", 4)
    made = []

    def chosen(module, probe, parts, free, names):
        made.append(len(probe))
        return names[0], engines.torch_run(module)

    monkeypatch.setattr(features, "quickest", chosen)
    spec, test = NetworkSpec("random", (3, 16, 16), 2), many(5)
    for train in ("one", "other", "one"):
        frozen_network = Frozen(spec, None, many(6), train, False)
        frozen_network.features(many(6), train)
        frozen_network.features(test, "test")
    assert len(made) == 2


def test_another_engine_than_the_first_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "_WORTH", 4)
    monkeypatch.setattr(features, "quickest", lambda m, *_: (NAMES[1], engines.torch_run(m)))
    spec, train = NetworkSpec("random", (3, 16, 16), 2), many(6)
    extract_features(spec, None, train, "train")
    monkeypatch.setattr(features, "quickest", lambda m, *_: (TORCH, engines.torch_run(m)))
    made = Frozen(spec, None, train, "train", False)
    made.features(train, "train")
    assert caplog.records == []
    made.features(many(7), "val")
    assert NAMES[1] in caplog.text


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


def run_in_eight_bits(side=96):
    """A network with norms as after training, what it sees, and it in eight bits."""
    module, seen = view("resnet18", side), raw_images(24, side)
    generator = torch.Generator().manual_seed(2)
    for norm in (m for m in module.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_var.uniform_(0.5, 2.0, generator=generator)
        nn.init.normal_(norm.bias, std=0.2, generator=generator)
        nn.init.uniform_(norm.weight, 0.5, 1.0, generator=generator)
    return module, seen, [run(seen) for run in frozen.compiled(module, seen, "int8", (0,))]


def test_eight_bits_come_close_and_closer_and_the_same_each_time(monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setattr(frozen, "precisions", lambda: ("int8", "f32"))
    module, seen, found = run_in_eight_bits()
    with torch.no_grad():
        expected = module(seen)
    errors = [float((out - expected).norm() / expected.norm()) for out in found]
    assert 1e-4 < errors[0] < 0.05  # it is rounded, and not far off
    assert errors == sorted(errors, reverse=True)
    for first, again in zip(found, run_in_eight_bits()[2], strict=True):
        assert torch.equal(first, again)


def test_eight_bits_have_no_form_of_a_network_that_is_not_convolutions(monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setattr(frozen, "precisions", lambda: ("int8", "f32"))
    module, probe = view("vit_tiny_patch16_224", 224), raw_images(2, 224)
    assert list(frozen.compiled(module, probe, "int8", (0,))) == []
    assert quickest(module, probe, module.parts, names=(ROUNDED,))[0] == TORCH


def test_the_rounded_convolutions_are_computed_in_eight_bits(monkeypatch):
    """The engine may also keep what is to be rounded and compute it as before."""
    openvino = pytest.importorskip("openvino")
    monkeypatch.setattr(frozen, "precisions", lambda: ("int8", "f32"))
    laid_out, made = openvino.Core.compile_model, []
    monkeypatch.setattr(
        openvino.Core, "compile_model", lambda *a: made.append(laid_out(*a)) or made[-1]
    )
    run_in_eight_bits()
    infos = [op.get_rt_info() for op in made[-2].get_runtime_model().get_ordered_ops()]
    kinds = [
        info["runtimePrecision"].astype(str)
        for info in infos
        if "Conv" in info["layerType"].astype(str) and "ert" not in info["layerType"].astype(str)
    ]
    assert len(kinds) == 20
    assert sum(kind in ("i8", "u8") for kind in kinds) >= 16


TWO_ENGINES_AND_A_SIGNAL = """
import gc, os, signal, torch
from sebra_kernels.frozen import compiled

signal.signal(signal.SIGINT, lambda *_: print("heard", flush=True))
module, probe = torch.nn.Conv2d(3, 4, 3).eval(), torch.rand(2, 3, 8, 8)
first, second = (next(compiled(module, probe, "f32", [0])) for _ in range(2))
first(probe), second(probe)
del first
gc.collect()
del second
gc.collect()
os.kill(os.getpid(), signal.SIGINT)
"""


def test_signals_arrive_after_engines_are_gone():
    """OpenVINO lends the main thread a stack for signals; a stop must not end in a crash."""
    pytest.importorskip("openvino")
    command = [sys.executable, "-c", TWO_ENGINES_AND_A_SIGNAL]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr
