"""The training copy computes what the body computes, shares all of it and outlives none of it.

Without a GPU the kernels run in Triton's interpreter, in a process of its own: this file is also
the script of that.
"""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from engine.interpreted import run_interpreted
from sebra.engine import networks
from sebra.engine.bodies import small_body
from sebra.engine.networks import NetworkSpec, build
from sebra_kernels import fusing

has_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


class Block(nn.Module):
    """A residual block whose shortcut has a batch norm of its own, then one without."""

    def __init__(self, in_place: bool = True) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=0.3)
        self.conv3, self.norm3 = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)
        self.conv4, self.norm4 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.0)
        self.relu = nn.ReLU(inplace=in_place)
        self.in_place = in_place

    def forward(self, x):
        y = self.drop(self.relu(self.norm1(self.conv1(x))))
        y = self.norm2(self.conv2(y))
        if self.in_place:
            y += self.norm3(self.conv3(x))
        else:
            y = self.norm3(self.conv3(x)) + y
        y = self.relu(y)
        return torch.relu(y + self.drop(self.norm4(self.conv4(y)))).mean((2, 3))


class Branching(nn.Module):
    """Its path depends on the values: a trace cannot hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU())

    def forward(self, x):
        y = self.layers(x)
        return y if float(y.sum()) > 0 else -y


class Kept(nn.Module):
    """Batch norms next to a ReLU that must stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.BatchNorm2d(3, affine=False)
        self.untracked = nn.BatchNorm2d(3, track_running_stats=False)
        self.average = nn.BatchNorm2d(3, momentum=None)
        self.twice = nn.BatchNorm2d(3)
        self.read = nn.BatchNorm2d(3)
        self.changed = nn.BatchNorm2d(3)
        self.six = nn.BatchNorm2d(3)
        self.noise = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.5)
        self.leaky = nn.BatchNorm2d(3)
        self.relu = nn.LeakyReLU(0.2)  # its name says something else

    def forward(self, x):
        x = self.relu(self.leaky(x))
        for norm in (self.plain, self.untracked, self.average, self.twice, self.twice):
            x = torch.relu(norm(x))
        y = self.read(x)
        x = torch.relu(y) + y
        before = x.sigmoid()
        after = before.tanh()
        x = torch.relu(before.add_(self.changed(x))) + after  # something else reads `before`
        return torch.relu(self.drop(self.noise(nn.functional.relu6(self.six(x)))))


@pytest.fixture
def usable(monkeypatch):
    """As if there were a GPU; on the CPU the copy computes by torch's own kernels."""
    monkeypatch.setattr(fusing, "available", lambda: True)


def copy_of(body):
    return fusing.training_copy(body, torch.device(fusing._DEVICE))


def images(n=4, side=9):
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))


def trained(function, body, x):
    """The results of two steps, the gradients of both and the state after them."""
    outs = []
    for step in (1.0, 2.0):
        out = function(x * step)
        (out * torch.linspace(-1, 1, out.numel()).to(out).view_as(out)).sum().backward()
        outs.append(out.detach())
    grads = {f"grad of {k}": p.grad for k, p in body.named_parameters()}
    return {"out": torch.cat(outs), **grads, **body.state_dict()}


def compare(body, x, **tolerance):
    """The copy of `body` against the body as it is, in two training steps."""
    other = copy.deepcopy(body)
    found = trained(copy_of(other), other, x)
    expected = trained(body, body, x)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name].to(value.dtype),
            value,
            **tolerance,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def fused_modules(copied):
    return [m for m in copied.program.modules() if isinstance(m, fusing.FusedNorm)]


def bodies():
    torch.manual_seed(0)
    frozen = Block()
    frozen.norm2.eval()
    return {
        "small": small_body((8, 12))[0],
        "residual": Block(),
        "sum the other way round": Block(in_place=False),
        "one norm frozen": frozen,
        "part of another": nn.Sequential(small_body((6, 5))[0], nn.LayerNorm(5)),
    }


@pytest.mark.parametrize("name", bodies())
def test_it_trains_as_the_body_does(usable, name):
    compare(bodies()[name].double(), images().double())


@has_triton
def test_it_trains_as_the_body_does_with_the_kernels():
    run_interpreted(__file__)


def with_the_kernels():
    from sebra_kernels import norm_relu

    fusing.available, fusing._DEVICE = (lambda: True), "cpu"
    calls = []
    plain = norm_relu.norm_relu
    norm_relu.norm_relu = lambda *given: calls.append(given) or plain(*given)
    for name, body in bodies().items():
        calls.clear()
        compare(body, images(), atol=1e-4, rtol=1e-4)
        chains = len(fused_modules(copy_of(body)))
        assert len(calls) == 2 * (chains - (name == "one norm frozen")), name
    assert fusing._error(torch.device("cpu"), True) < fusing._TOLERANCE


@pytest.mark.parametrize(
    ("name", "norms", "sums"), [("small", 4, 0), ("resnet18", 17, 8), ("resnet50", 49, 16)]
)
def test_every_norm_before_a_relu_is_joined_with_it(usable, name, norms, sums):
    body = build(NetworkSpec(name, (3, 32, 32), 2), 0).body
    copied = copy_of(body)
    fused = fused_modules(copied)
    assert len(fused) == norms
    calls = [n for n in copied.program.graph.nodes if str(n.target).startswith("fused_")]
    assert sum(len(n.args) == 2 for n in calls) == sums
    assert [n for n in copied.program.graph.nodes if n.op == "call_function"] == []
    assert {id(p) for p in copied.program.parameters()} == {id(p) for p in body.parameters()}
    assert {id(b) for b in copied.program.buffers()} == {id(b) for b in body.buffers()}
    assert copy_of(body) is copied


def test_norms_of_other_kinds_stay(usable):
    body = Kept()
    assert copy_of(body) is None
    body = nn.Sequential(Kept(), nn.BatchNorm2d(3), nn.ReLU())
    assert [m.norm for m in fused_modules(copy_of(body))] == [body[1]]


@pytest.mark.parametrize("body", [Branching(), nn.Flatten()], ids=["no trace", "no norm"])
def test_a_body_without_such_chains_has_no_copy(usable, body):
    assert copy_of(body) is None


def test_making_a_copy_leaves_the_training_flags(usable):
    body = Block().eval()
    body.norm2.train()
    before = [m.training for m in body.modules()]
    assert copy_of(body) is not None
    assert [m.training for m in body.modules()] == before


def test_making_a_copy_leaves_what_a_body_counts(usable):
    """This one's norms count their batches in Python, so that a careless trace would count too."""
    body = build(NetworkSpec("regnetx_002", (3, 32, 32), 2), 0).body.train()
    before = copy.deepcopy(body.state_dict())
    copy_of(body)
    for name, value in body.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_networks_train_by_it_and_nothing_else_does(monkeypatch):
    asked = []

    def noted(body, device):
        asked.append(device.type)
        return lambda x: 2 * body(x)

    monkeypatch.setattr(networks, "training_copy", noted)
    network = build(NetworkSpec("small", (3, 16, 16), 2), 0).train()
    x = torch.full((4, 3, 16, 16), 128.0)
    trained_by = network.embed(x)
    torch.testing.assert_close(trained_by, 2 * network.body((x - network.shift) * network.scale))
    assert asked == ["cpu"]
    network.eval().embed(x)
    build(NetworkSpec("linear", (5,), 2, hidden=3), 0).train().embed(torch.rand(2, 5))
    monkeypatch.setenv("WORLD_SIZE", "2")
    network.train().embed(x)
    assert asked == ["cpu"]


def test_in_evaluation_it_uses_and_keeps_the_running_statistics(usable):
    body = Block()
    copied = copy_of(body)
    copied(images())
    body.eval()
    before = copy.deepcopy(body.state_dict())
    torch.testing.assert_close(copied(images()), body(images()))
    for name, value in body.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_it_does_not_keep_the_body_alive(usable):
    body = Block()
    assert copy_of(body) is not None
    gone = weakref.ref(body)
    del body
    gc.collect()
    assert gone() is None


def test_there_is_none_without_a_gpu_or_triton(monkeypatch, usable):
    assert fusing.training_copy(Block(), torch.device("cpu")) is None
    assert fusing.training_copy(Block(), torch.device("cuda")) is not None
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert copy_of(Block()) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 99)
    monkeypatch.setitem(sys.modules, "sebra_kernels.norm_relu", None)
    monkeypatch.delattr("sebra_kernels.norm_relu", raising=False)
    fusing._kernels.cache_clear()
    try:
        assert fusing._kernels() is None
        assert not fusing.available()
    finally:
        fusing._kernels.cache_clear()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_on_a_gpu():
    assert fusing.available()
    made = build(NetworkSpec("resnet18", (3, 64, 64), 2), 0).body.cuda()
    made.to(memory_format=torch.channels_last)
    other = copy.deepcopy(made)
    x = images(32, 64).cuda().to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16):
        found = trained(copy_of(other), other, x)
        expected = trained(made, made, x)
    for name, value in expected.items():
        if value.is_floating_point():
            size = value.float().norm().clamp_min(1e-6)  # blocks begin with a last norm of zeros
            error = (found[name].float() - value.float()).norm() / size
            assert error < (0.2 if name.startswith("grad") else 0.05), name
        else:
            assert torch.equal(found[name], value), name


if __name__ == "__main__":
    with_the_kernels()
