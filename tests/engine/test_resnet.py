"""Plain ResNets without timm: the same numbers, and seconds less to load."""

from __future__ import annotations

import subprocess
import sys

import pytest
import timm
import torch

from sebra.engine import networks
from sebra.engine.networks import NetworkSpec
from sebra.engine.weights import Weights
from sebra_kernels import resnet


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_it_is_timms_network_number_for_number(name):
    torch.manual_seed(0)
    theirs = timm.create_model(name, pretrained=False, num_classes=0)
    torch.manual_seed(0)
    ours = resnet.body(name, filled=True)
    expected = theirs.state_dict()
    assert list(ours.state_dict()) == list(expected)
    assert all(torch.equal(value, expected[key]) for key, value in ours.state_dict().items())
    x = torch.randn(2, 3, 64, 64)
    for train in (True, False):
        assert torch.equal(ours.train(train)(x), theirs.train(train)(x))
    assert ours.num_features == theirs.num_features
    assert ours.feature_info == [
        {k: e[k] for k in ("module", "reduction", "num_chs")} for e in theirs.feature_info[1:]
    ]


def test_names_that_are_not_plain_are_left_to_timm():
    assert resnet.body("resnet50d", filled=True) is None
    assert resnet.body("small", filled=False) is None


def test_weights_that_are_read_leave_nothing_unfilled():
    spec = NetworkSpec("resnet18", (3, 32, 32), 2)
    source = networks.build(spec, 3).body
    tensors = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    filled = networks.build(spec, 0, Weights("x", "x", tensors)).body
    for key, value in source.state_dict().items():
        assert torch.equal(filled.state_dict()[key], value), key


def test_training_one_loads_neither_timm_nor_the_compiler_of_torch():
    code = """
import sys, torch
from sebra.engine import networks
from sebra.engine.networks import NetworkSpec
from sebra.engine.step import make_optimizer
network = networks.build(NetworkSpec("resnet18", (3, 32, 32), 2), 0)
for name in ("sgd", "adam", "adamw"):
    optimizer = make_optimizer(network, name, 0.1)
    optimizer.zero_grad()
    network(torch.zeros(2, 3, 32, 32)).sum().backward()
    optimizer.step()
print([m for m in ("timm", "torchvision", "torch._dynamo", "scipy.stats") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_optimiser_steps_as_torchs_own():
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    from sebra.engine.step import make_optimizer

    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    for name, kind in kinds.items():
        ends = []
        for ours in (True, False):
            torch.manual_seed(0)
            layer = torch.nn.Linear(5, 3)
            made = make_optimizer(layer, name, 0.1, 0.01) if ours else None
            optimizer = made or kind(layer.parameters(), lr=0.1, weight_decay=0.01)
            for _ in range(3):
                optimizer.zero_grad()
                layer(x).square().sum().backward()
                optimizer.step()
            ends.append(layer.weight.detach())
        assert torch.equal(*ends), name
