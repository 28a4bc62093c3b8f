"""The joint kernels compute what batch norm, sum and ReLU compute, and so do their gradients.

Without a GPU they run in Triton's interpreter, which has to be asked for before Triton is imported:
hence this file is also the script of a process of its own.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F

from engine.interpreted import run_interpreted

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SHAPES = {
    "one block": (4, 64, 4, 4),
    "odd channels": (3, 7, 5, 5),
    "few channels, many rows": (9, 24, 12, 11),
    "several blocks": (2, 136, 7, 9),
    "one channel": (5, 1, 6, 6),
    "one cell": (70, 16, 1, 1),
    "two values": (2, 5, 1, 1),
}
MOMENTUM, EPS = 0.3, 1e-3


def leaves(shape, dtype, offset=0.0, device="cpu"):
    """Input, shortcut, weight, bias, running mean, running variance, gradient of the result."""
    generator = torch.Generator().manual_seed(sum(shape))
    c = shape[1]
    made = [torch.randn(s, generator=generator) for s in (shape, shape, (c,), (c,), (c,), (c,))]
    made[0] += offset
    made[5] = made[5].abs() + 0.5
    made.append(torch.randn(shape, generator=generator))
    # Maps are rounded to the dtype first, so that a more precise reference starts from the same.
    return [t.to(dtype) if t.dim() == 4 else t for t in (t.to(device) for t in made)]


def run(function, tensors, adds):
    """The result, the gradients and the running statistics."""
    x, shortcut, weight, bias, mean, var, grad = (t.detach().clone() for t in tensors)
    inputs = [x, weight, bias, *([shortcut] if adds else [])]
    for t in inputs:
        t.requires_grad_()
    y = function(x, weight, bias, mean, var, shortcut if adds else None)
    y.backward(grad)
    return {
        "y": y.detach(),
        "dx": x.grad,
        "dweight": weight.grad,
        "dbias": bias.grad,
        "dshortcut": shortcut.grad,
        "running mean": mean,
        "running variance": var,
    }


def plain(x, weight, bias, mean, var, shortcut):
    out = F.batch_norm(x, mean, var, weight, bias, True, MOMENTUM, EPS)
    return F.relu(out if shortcut is None else out + shortcut)


def fused(x, weight, bias, mean, var, shortcut):
    from sebra_kernels.norm_relu import norm_relu

    return norm_relu(x, weight, bias, mean, var, MOMENTUM, EPS, shortcut)


def pairs(tensors, adds):
    """What the kernels compute, beside what torch computes in double precision."""
    found = run(fused, tensors, adds)
    expected = run(plain, [t.double() for t in tensors], adds)
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
            continue
        assert found[name].dtype == (tensors[0] if value.dim() == 4 else tensors[2]).dtype, name
        yield name, found[name].double(), value


def compare(tensors, adds, tolerance):
    for name, found, expected in pairs(tensors, adds):
        torch.testing.assert_close(
            found,
            expected,
            atol=tolerance,
            rtol=tolerance,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def compare_norms(tensors, adds, tolerance):
    """For maps so large or so rounded that some values change the side of the ReLU's edge."""
    for name, found, expected in pairs(tensors, adds):
        assert float((found - expected).norm() / expected.norm()) < tolerance, name


def check_shapes():
    for name, shape in SHAPES.items():
        for adds in (False, True):
            print(name, "with a shortcut" if adds else "")  # noqa: T201
            compare(leaves(shape, torch.float32), adds, 3e-5)


def check_precision():
    """A mean a thousand times the deviation costs what rounding of the mean costs, and no more."""
    tensors = leaves((9, 24, 12, 11), torch.float32, offset=1000.0)
    for adds in (False, True):
        compare_norms(tensors, adds, 0.02)
    for name, found, expected in pairs(tensors, False):
        if name in ("y", "running mean", "running variance"):
            tolerance = 1e-3 if name == "y" else 3e-5
            torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def check_memory_formats():
    x, shortcut, weight, bias, mean, var, grad = leaves((3, 24, 5, 6), torch.float32)
    last = torch.channels_last
    for formats in ((x, shortcut, grad.to(memory_format=last)), (x.to(memory_format=last),) * 3):
        compare([*formats[:2], weight, bias, mean, var, formats[2]], True, 3e-5)
    apart = x.permute(0, 1, 3, 2)[:, :, ::2]  # neither of the two
    spread = torch.ones(1).expand(apart.shape)
    compare([apart, spread, weight, bias, mean, var, spread], True, 3e-5)
    y = fused(x, weight, bias, mean, var, None)
    assert y.is_contiguous(memory_format=last)


def check_half_precision():
    for dtype in (torch.bfloat16, torch.float16):
        for adds in (False, True):
            compare_norms(leaves((4, 64, 5, 5), dtype), adds, 0.05)


def check_without_gradients():
    tensors = leaves((3, 24, 5, 6), torch.float32)
    x, shortcut, weight, bias, mean, var, _ = (t.clone() for t in tensors)
    with torch.no_grad():
        y = fused(x, weight, bias, mean, var, shortcut)
    expected = run(plain, tensors, True)
    assert not y.requires_grad
    torch.testing.assert_close(y, expected["y"], atol=3e-5, rtol=3e-5)
    torch.testing.assert_close(var, expected["running variance"])


def check_what_is_not_a_number():
    tensors = leaves((3, 7, 5, 5), torch.float32)
    tensors[0][1, 3, 2, 2] = float("nan")
    y = run(fused, tensors, False)["y"]
    assert y[:, 3].isnan().all()
    assert not y[:, :3].isnan().any()


def check_refusals():
    x, shortcut, *rest, _ = leaves((3, 7, 5, 5), torch.float32)
    for bad in (shortcut[:1], shortcut.bfloat16()):
        with pytest.raises(ValueError, match="shape and the dtype"):
            fused(x, *rest, bad)
    with pytest.raises(ValueError, match="more than one value"):
        fused(x[:1, :, :1, :1], *rest, None)


def test_in_the_interpreter():
    """All checks in one process: starting it takes longer than most of them."""
    assert "check_refusals" in run_interpreted(__file__)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("adds", [False, True], ids=["plain", "shortcut"])
@pytest.mark.parametrize("shape", [*SHAPES.values(), (64, 256, 40, 40), (32, 64, 80, 80)])
def test_on_a_gpu(shape, adds):
    tensors = leaves(shape, torch.float32, device="cuda")
    compare_norms(tensors, adds, 2e-3)
    first, again = run(fused, tensors, adds), run(fused, tensors, adds)
    assert all(first[k] is again[k] or torch.equal(first[k], again[k]) for k in first)


if __name__ == "__main__":
    for label, check in list(globals().items()):
        if label.startswith("check_"):
            print(label)  # noqa: T201
            check()
