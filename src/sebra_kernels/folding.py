"""An evaluation copy of a convolutional body that does as little as the mathematics allows.

Batch norms are folded into the convolutions before them; bias, shortcut and ReLU are computed by
the convolution's own kernel where the library has one (cuDNN on a GPU). What a trace does
not understand stays as it was; a body that cannot be traced has no such copy.
"""

from __future__ import annotations

import operator
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from sebra.engine.passes import training_flags_kept
from sebra_kernels.fusing import drop_identities, feeds_only

_ADD = (operator.add, operator.iadd, torch.add)
_TOLERANCE = 0.05


class FoldedConv(nn.Module):
    """A convolution with its batch norm's effect, and maybe a shortcut and a ReLU after it."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._source = (conv, norm)  # in a tuple: their parameters are not this module's
        self.dtype = dtype
        self.relu = False
        self.adds = False
        self.register_buffer("weight", torch.empty(0))
        self.register_buffer("bias", torch.empty(0))
        # Any: stubs do not know that padding has been checked to be numbers.
        self.place: Any = (conv.stride, conv.padding, conv.dilation, conv.groups)
        self.fused = False

    def refresh(self) -> None:
        """Takes the weights of the network as they are now."""
        weight, bias = self._folded()
        weight = weight.to(self.dtype, memory_format=torch.channels_last)
        if self.weight.shape == weight.shape:
            self.weight.copy_(weight)
            self.bias.copy_(bias)
        else:
            self.weight, self.bias = weight, bias.to(self.dtype)

    def _folded(self) -> tuple[Tensor, Tensor]:
        conv, norm = self._source
        weight, bias = conv.weight, conv.bias
        if norm is not None:
            known: Any = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
            weight, bias = fuse_conv_bn_weights(weight, bias, *known)
        return weight.detach(), weight.new_zeros(len(weight)) if bias is None else bias.detach()

    def forward(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        if self.fused and self.relu:
            if z is None:
                return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self.place)
            return torch.cudnn_convolution_add_relu(x, self.weight, z, 1, self.bias, *self.place)
        out = F.conv2d(x, self.weight, self.bias, *self.place)
        if z is not None:
            out += z
        return out.relu_() if self.relu else out


class Folded:
    """The folded copy of one network body: `refresh` after training, then call with raw images."""

    def __init__(self, body: nn.Module, shift: Tensor, scale: Tensor) -> None:
        self.dtype = torch.bfloat16 if shift.is_cuda else torch.float32
        self.shift, self.scale = shift, scale
        with training_flags_kept(body):
            self.program, self.convs = _fold(body.eval(), self.dtype)

    def refresh(self) -> None:
        with torch.no_grad():
            for conv in self.convs:
                conv.refresh()

    def __call__(self, x: Tensor) -> Tensor:
        """Embeddings of raw images (n x 3 x h x w, uint8 or float)."""
        out = torch.empty_like(x, dtype=self.dtype, memory_format=torch.channels_last)
        torch.sub(x, self.shift, out=out)
        z: Tensor = self.program(out.mul_(self.scale))
        return z

    def fuse(self, fused: bool) -> None:
        for conv in self.convs:
            conv.fused = fused


def _fold(body: nn.Module, dtype: torch.dtype) -> tuple[fx.GraphModule, list[FoldedConv]]:
    traced = fx.symbolic_trace(body)
    graph = traced.graph
    modules = dict(traced.named_modules())
    drop_identities(graph, modules)
    convs: dict[fx.Node, FoldedConv] = {}
    for node in list(graph.nodes):
        conv = _module(node, modules, nn.Conv2d)
        if conv is None:
            continue
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise ValueError("a convolution of a kind that is not folded")
        follower = next(iter(node.users), node)
        norm = _module(follower, modules, nn.BatchNorm2d) if feeds_only(node, follower) else None
        last = node if norm is None else follower
        made = FoldedConv(conv, norm, dtype)
        name = f"folded_{len(convs)}"
        traced.add_module(name, made)
        with graph.inserting_after(last):
            new = graph.call_module(name, (node.args[0],))
        last.replace_all_uses_with(new)
        if last is not node:
            graph.erase_node(last)
        graph.erase_node(node)
        convs[new] = made
    _join_shortcuts(graph, modules, convs)
    graph.lint()
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced, list(convs.values())


def _join_shortcuts(graph: fx.Graph, modules: dict[str, Any], convs: dict[Any, FoldedConv]) -> None:
    """A ReLU, or a sum and a ReLU, after a convolution become part of it."""
    for node in list(graph.nodes):
        if _module(node, modules, nn.ReLU) is None and node.target not in (F.relu, torch.relu):
            continue
        before: Any = node.args[0]
        if before in convs and feeds_only(before, node):
            convs[before].relu = True
            node.replace_all_uses_with(before)
            graph.erase_node(node)
        elif before.target in _ADD and len(before.args) == 2 and feeds_only(before, node):
            _join_sum(graph, node, before, convs)


def _join_sum(graph: fx.Graph, relu: fx.Node, total: fx.Node, convs: dict[Any, Any]) -> None:
    left: Any = total.args[0]
    right: Any = total.args[1]
    order = {n: i for i, n in enumerate(graph.nodes)}
    ready = [n for n in (left, right) if n in convs and feeds_only(n, total)]
    if not ready or not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return
    main = left if left in ready else right
    shortcut = right if main is left else left
    made = convs[main]
    if made.relu or made.adds:
        return
    made.relu, made.adds = True, True
    if order[shortcut] > order[main]:  # the shortcut must be there before the convolution adds it
        shortcut.append(main)
    main.args = (main.args[0], shortcut)
    relu.replace_all_uses_with(main)
    graph.erase_node(relu)
    graph.erase_node(total)


def _module(node: Any, modules: dict[str, Any], kind: Any) -> Any:
    if not isinstance(node, fx.Node) or node.op != "call_module":
        return None
    found = modules.get(str(node.target))
    return found if isinstance(found, kind) else None


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
        if not made.convs:
            return None
        made.refresh()
        with training_flags_kept(body):
            expected = body.eval()((probe.to(shift.dtype) - shift) * scale).float()
        for fused in (True, False):
            made.fuse(fused)
            try:
                found = made(probe).float()
            except RuntimeError:  # this build of the library lacks the joint kernels
                continue
            if float((found - expected).norm()) <= _TOLERANCE * float(expected.norm()):
                return made
        return None
    except Exception:  # tracing fails in many ways; the plain body computes the same
        return None
