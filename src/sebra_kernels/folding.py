"""An evaluation copy of a convolutional body, its batch norms folded into the convolutions before.

What a trace does not understand stays as it was; a body that cannot be traced has no such copy.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from sebra.engine.device import autocast
from sebra.engine.passes import training_flags_kept
from sebra_kernels.fusing import drop_identities, feeds_only

_TOLERANCE = 0.05
_SHAPE = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups")
Pair = tuple[nn.Conv2d, nn.Conv2d, nn.BatchNorm2d]  # the convolution of the copy, and its sources


class Folded:
    """The folded copy of one network body: `refresh` after training, then call with raw images."""

    def __init__(self, body: nn.Module, shift: Tensor, scale: Tensor) -> None:
        self.dtype = torch.bfloat16 if shift.is_cuda else torch.float32
        self.shift, self.scale = shift, scale
        with training_flags_kept(body):
            self.program, self.pairs = _fold(body.eval(), self.dtype)

    def refresh(self) -> None:
        """Takes the weights of the body as they are now."""
        for made, conv, norm in self.pairs:
            known: Any = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
            weight, bias = fuse_conv_bn_weights(conv.weight, conv.bias, *known)
            assert made.bias is not None
            made.weight.copy_(weight)
            made.bias.copy_(bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Embeddings of raw images (n x 3 x h x w, uint8 or float)."""
        out = torch.empty_like(x, dtype=self.dtype, memory_format=torch.channels_last)
        torch.sub(x, self.shift, out=out)
        z: Tensor = self.program(out.mul_(self.scale))
        return z


def _fold(body: nn.Module, dtype: torch.dtype) -> tuple[fx.GraphModule, list[Pair]]:
    traced = fx.symbolic_trace(body)
    graph, modules = traced.graph, dict(traced.named_modules())
    drop_identities(graph, modules)
    pairs: list[Pair] = []
    for node in list(graph.nodes):
        conv = modules.get(str(node.target)) if node.op == "call_module" else None
        follower = next(iter(node.users), None)
        norm = None if follower is None else modules.get(str(follower.target))
        if type(conv) is not nn.Conv2d or type(norm) is not nn.BatchNorm2d:
            continue
        if conv.padding_mode != "zeros":
            continue
        if follower is None or follower.op != "call_module" or not feeds_only(node, follower):
            continue
        known: Any = {name: getattr(conv, name) for name in _SHAPE}
        made = nn.Conv2d(**known, device=conv.weight.device, dtype=dtype)
        made = made.to(memory_format=torch.channels_last)
        name = f"folded_{len(pairs)}"
        traced.add_module(name, made.requires_grad_(False))
        with graph.inserting_after(follower):
            follower.replace_all_uses_with(graph.call_module(name, node.args))
        graph.erase_node(follower)
        graph.erase_node(node)
        pairs.append((made, conv, norm))
    graph.lint()
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced, pairs


_KNOWN: WeakKeyDictionary[nn.Module, Folded | None] = WeakKeyDictionary()


@torch.no_grad()
def folded_copy(body: nn.Module, shift: Tensor, scale: Tensor, probe: Tensor) -> Folded | None:
    """The refreshed folded copy of `body`, or None where it has none.

    The first time, a few images (`probe`, raw) go through both; a copy that disagrees is not used.
    """
    if body not in _KNOWN:
        _KNOWN[body] = _checked(body, shift, scale, probe)
    found = _KNOWN[body]
    if found is not None:
        found.refresh()
    return found


def _checked(body: nn.Module, shift: Tensor, scale: Tensor, probe: Tensor) -> Folded | None:
    try:
        made = Folded(body, shift, scale)
        made.refresh()
        with training_flags_kept(body):
            expected = body.eval()((probe.to(shift.dtype) - shift) * scale).float()
        with autocast(shift.device):
            wrong = float((made(probe).float() - expected).norm())
        return made if made.pairs and wrong <= _TOLERANCE * float(expected.norm()) else None
    except Exception:  # tracing fails in many ways; the plain body computes the same
        return None
