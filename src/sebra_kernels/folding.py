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

from sebra.engine.passes import training_flags_kept

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
        self.carried: list[FoldedConv] = []  # shortcuts whose bias is added here
        self.drops_bias = False
        self.in_scale: Tensor | None = None  # input normalisation, for the first convolution
        self.register_buffer("weight", torch.empty(0))
        self.register_buffer("bias", torch.empty(0))
        # Any: stubs do not know that padding has been checked to be numbers.
        self.place: Any = (conv.stride, conv.padding, conv.dilation, conv.groups)
        self.fused = False

    def refresh(self) -> None:
        """Takes the weights of the network as they are now."""
        weight, bias = self._folded()
        for other in self.carried:
            bias = bias + other._folded()[1]
        weight = weight.to(self.dtype, memory_format=torch.channels_last)
        if self.weight.shape == weight.shape:
            self.weight.copy_(weight)
            self.bias.copy_(bias)
        else:
            self.weight, self.bias = weight, bias.to(self.dtype)

    def _folded(self) -> tuple[Tensor, Tensor]:
        conv, norm = self._source
        weight = conv.weight.detach().float()
        bias = weight.new_zeros(len(weight)) if conv.bias is None else conv.bias.detach().float()
        if norm is not None:
            assert norm.running_var is not None
            assert norm.running_mean is not None
            scale = (norm.running_var.float() + norm.eps).rsqrt() * norm.weight.detach().float()
            weight = weight * scale[:, None, None, None]
            bias = (bias - norm.running_mean) * scale + norm.bias.detach().float()
        if self.in_scale is not None:
            weight = weight * self.in_scale.view(1, -1, 1, 1)
        return weight, bias

    def forward(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        if self.fused and self.relu:
            if z is None:
                return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self.place)
            return torch.cudnn_convolution_add_relu(x, self.weight, z, 1, self.bias, *self.place)
        bias = None if self.drops_bias else self.bias
        out = F.conv2d(x, self.weight, bias, *self.place)
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
        first = _first_conv(self.program, self.convs)
        if first is not None:
            first.in_scale = scale
        self._scale_in = first is None

    def refresh(self) -> None:
        with torch.no_grad():
            for conv in self.convs:
                conv.refresh()

    def __call__(self, x: Tensor) -> Tensor:
        """Embeddings of raw images (n x 3 x h x w, uint8 or float)."""
        out = torch.empty_like(x, dtype=self.dtype, memory_format=torch.channels_last)
        torch.sub(x, self.shift, out=out)
        if self._scale_in:
            out *= self.scale.to(self.dtype)
        z: Tensor = self.program(out)
        return z

    def fuse(self, fused: bool) -> None:
        for conv in self.convs:
            conv.fused = fused


def _fold(body: nn.Module, dtype: torch.dtype) -> tuple[fx.GraphModule, list[FoldedConv]]:
    traced = fx.symbolic_trace(body)
    graph = traced.graph
    modules = dict(traced.named_modules())
    _drop_identities(traced, modules)
    convs: dict[fx.Node, FoldedConv] = {}
    for node in list(graph.nodes):
        conv = _module(node, modules, nn.Conv2d)
        if conv is None:
            continue
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise ValueError("a convolution of a kind that is not folded")
        last, norm = node, None
        follower = _only_user(node)
        if follower is not None and _module(follower, modules, nn.BatchNorm2d) is not None:
            norm = _module(follower, modules, nn.BatchNorm2d)
            last = follower
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
    for name in [n for n, m in traced.named_children() if not n.startswith("folded_")]:
        _forget_convolutions(traced, name)
    return traced, list(convs.values())


def _drop_identities(traced: fx.GraphModule, modules: dict[str, Any]) -> None:
    for node in list(traced.graph.nodes):
        module = _module(node, modules, nn.Module)
        if isinstance(module, (nn.Identity, nn.Dropout)):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)


def _join_shortcuts(graph: fx.Graph, modules: dict[str, Any], convs: dict[Any, FoldedConv]) -> None:
    """A ReLU, or a sum and a ReLU, after a convolution become part of it."""
    for node in list(graph.nodes):
        if _module(node, modules, nn.ReLU) is None and node.target not in (F.relu, torch.relu):
            continue
        before: Any = node.args[0]
        if before in convs and _feeds_only(before, node):
            convs[before].relu = True
            node.replace_all_uses_with(before)
            graph.erase_node(node)
        elif before.target in _ADD and len(before.args) == 2 and _feeds_only(before, node):
            _join_sum(graph, node, before, convs)


def _join_sum(graph: fx.Graph, relu: fx.Node, total: fx.Node, convs: dict[Any, Any]) -> None:
    left: Any = total.args[0]
    right: Any = total.args[1]
    order = {n: i for i, n in enumerate(graph.nodes)}
    ready = [n for n in (left, right) if n in convs and _feeds_only(n, total)]
    if not ready or not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return
    main = left if left in ready else right
    shortcut = right if main is left else left
    made = convs[main]
    if made.relu or made.adds:
        return
    if shortcut in ready and not convs[shortcut].relu and not convs[shortcut].adds:
        made.carried.append(convs[shortcut])
        convs[shortcut].drops_bias = True
    made.relu, made.adds = True, True
    if order[shortcut] > order[main]:  # the shortcut must be there before the convolution adds it
        shortcut.append(main)
    main.args = (main.args[0], shortcut)
    relu.replace_all_uses_with(main)
    graph.erase_node(relu)
    graph.erase_node(total)


def _first_conv(program: fx.GraphModule, convs: list[FoldedConv]) -> FoldedConv | None:
    """The convolution that alone reads the input, if there is one."""
    start = next(n for n in program.graph.nodes if n.op == "placeholder")
    user = _only_user(start)
    if user is None or user.op != "call_module":
        return None
    found = program.get_submodule(str(user.target))
    return found if isinstance(found, FoldedConv) else None


def _forget_convolutions(traced: fx.GraphModule, name: str) -> None:
    used = {str(n.target).split(".")[0] for n in traced.graph.nodes if n.op == "call_module"}
    if name not in used:
        delattr(traced, name)


def _module(node: Any, modules: dict[str, Any], kind: Any) -> Any:
    if not isinstance(node, fx.Node) or node.op != "call_module":
        return None
    found = modules.get(str(node.target))
    return found if isinstance(found, kind) else None


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _feeds_only(node: fx.Node, user: fx.Node) -> bool:
    return _only_user(node) is user


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
