"""The folded copy computes what the body computes, and follows its training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sebra.engine.networks import NetworkSpec, build
from sebra_kernels import folding
from sebra_kernels.folding import Folded, folded_copy


def raw_images(n: int = 3, side: int = 33) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (n, side, side, 3)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8).permute(0, 3, 1, 2)


def network(name: str):
    made = build(NetworkSpec(name, (3, 33, 33), 2), 0)
    generator = torch.Generator().manual_seed(1)
    for module in made.body.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training, and not the identity
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)
            nn.init.normal_(module.bias, generator=generator)
    return made.eval()


@pytest.mark.parametrize(
    "name", ["small", "random", "resnet18", "resnet26", "mobilenetv3_small_050"]
)
def test_it_computes_what_the_body_computes(name):
    made = network(name)
    folded = Folded(made.body, made.shift, made.scale)
    folded.refresh()
    with torch.no_grad():
        torch.testing.assert_close(
            folded(raw_images()), made.embed(raw_images()), atol=2e-4, rtol=1e-3
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", ["resnet18", "resnet26", "mobilenetv3_small_050"])
def test_it_computes_the_same_on_a_gpu(name):
    made = network(name).cuda()
    folded = folded_copy(made.body, made.shift, made.scale, raw_images().cuda())
    assert folded is not None
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        found, expected = folded(raw_images().cuda()).float(), made.embed(raw_images().cuda())
    assert float((found - expected).norm()) < 0.05 * float(expected.norm())


def test_batch_norms_disappear_into_the_convolutions():
    made = network("resnet18")
    folded = Folded(made.body, made.shift, made.scale)
    assert nn.BatchNorm2d not in {type(m) for m in folded.program.modules()}
    assert len(folded.pairs) == 20


def test_it_follows_the_training_of_the_body():
    made = network("small")
    folded = folded_copy(made.body, made.shift, made.scale, raw_images())
    with torch.no_grad():
        before = folded(raw_images()).clone()
        for parameter in made.body.parameters():
            parameter.mul_(1.5)
        again = folded_copy(made.body, made.shift, made.scale, raw_images())
        assert again is folded
        expected = made.embed(raw_images())
        torch.testing.assert_close(again(raw_images()), expected, atol=2e-4, rtol=1e-3)
    assert not torch.allclose(before, expected, rtol=0.1)


def test_taking_a_copy_leaves_the_body_as_it_was():
    made = network("small").train()
    frozen = next(m for m in made.body.modules() if isinstance(m, nn.BatchNorm2d)).eval()
    before = {k: v.clone() for k, v in made.state_dict().items()}
    folded_copy(made.body, made.shift, made.scale, raw_images())
    assert made.body.training
    assert [m for m in made.body.modules() if not m.training] == [frozen]
    for name, value in made.state_dict().items():
        assert torch.equal(value, before[name]), name


class Branching(nn.Module):
    """Its path depends on the values: a trace cannot hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        y = self.conv(x).mean((2, 3))
        return y if float(y.sum()) > 0 else -y


@pytest.mark.parametrize("body", [Branching(), nn.Flatten()], ids=["no trace", "no convolution"])
def test_a_body_that_cannot_be_folded_has_no_copy(body):
    shift, scale = torch.zeros(1, 3, 1, 1), torch.ones(1, 3, 1, 1)
    assert folded_copy(body, shift, scale, raw_images()) is None


def test_a_copy_that_disagrees_is_not_used(monkeypatch):
    made = network("small")
    right = folding.fuse_conv_bn_weights
    twice = lambda *known: tuple(2 * t for t in right(*known))  # noqa: E731
    monkeypatch.setattr(folding, "fuse_conv_bn_weights", twice)
    assert folded_copy(made.body, made.shift, made.scale, raw_images()) is None
