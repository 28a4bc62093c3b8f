"""A training copy of a convolutional body, with batch norm, shortcut and ReLU in joint kernels.

The copy shares every module with the body, and so parameters, statistics and training flags. What
a trace does not understand stays as it was; a body that cannot be traced has no such copy.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from sebra.engine.passes import training_flags_kept

_ADD = (operator.add, operator.iadd, torch.add, "add", "add_")
_ADD_IN_PLACE = (operator.iadd, "add_")
_RELU = (F.relu, torch.relu, torch.relu_, "relu", "relu_")
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_DEVICE = "cuda"
_TOLERANCE = 0.02


class _Tracer(fx.Tracer):
    """Sees buffers as part of the graph; else a trace would change what a module counts in one."""

    proxy_buffer_attributes = True


class FusedNorm(nn.Module):
    """A batch norm and the ReLU after it, maybe with a shortcut added between the two.

    Does not count batches: its copy does that, for all norms at once.
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        norm = self.norm
        assert norm.momentum is not None
        assert norm.running_mean is not None
        assert norm.running_var is not None
        running = (norm.running_mean, norm.running_var)
        kernels = _kernels()
        if kernels is not None and norm.training and self._suits(x, shortcut):
            out: Tensor = kernels.norm_relu(
                x, norm.weight, norm.bias, *running, norm.momentum, norm.eps, shortcut
            )
            return out
        affine = (norm.weight, norm.bias)
        out = F.batch_norm(x, *running, *affine, norm.training, norm.momentum, norm.eps)
        return F.relu(out if shortcut is None else out + shortcut)

    def _suits(self, x: Tensor, shortcut: Tensor | None) -> bool:
        same = shortcut is None or (shortcut.shape == x.shape and shortcut.dtype == x.dtype)
        return same and x.device.type == _DEVICE and x.dtype in _DTYPES and x.dim() == 4


class Fused:
    """The training copy of one network body; call it with what the body would be given."""

    def __init__(self, program: fx.GraphModule, norms: list[nn.BatchNorm2d]) -> None:
        self.program = program
        self.norms = norms

    def __call__(self, x: Tensor) -> Tensor:
        tracked = [n.num_batches_tracked for n in self.norms if n.training]
        counts = [count for count in tracked if count is not None]
        if counts:
            torch._foreach_add_(counts, 1)
        z: Tensor = self.program(x)
        return z


def _fuse(body: nn.Module) -> Fused:
    program = _traced(body)
    graph, modules = program.graph, dict(program.named_modules())
    drop_identities(graph, modules)
    calls = Counter(n.target for n in graph.nodes if n.op == "call_module")
    norms: list[nn.BatchNorm2d] = []
    for relu in list(graph.nodes):
        norm, total = _before_relu(relu, modules)
        if norm is None or calls[norm.target] > 1:  # each is to count one batch per call
            continue
        last = norm if total is None else total
        shortcut = () if total is None else tuple(n for n in total.args if n is not norm)
        name = f"fused_{len(norms)}"
        norms.append(modules[str(norm.target)])
        program.add_module(name, FusedNorm(norms[-1]))
        with graph.inserting_before(last):
            relu.replace_all_uses_with(graph.call_module(name, (norm.args[0], *shortcut)))
        for node in (relu, total, norm):
            if node is not None:
                graph.erase_node(node)
    graph.lint()
    program.recompile()
    return Fused(program, norms)


def _traced(body: nn.Module) -> fx.GraphModule:
    """A trace of what the body does in training; the training flags stay as they are."""
    with training_flags_kept(body):
        program = fx.GraphModule(body, _Tracer().trace(body.train()))
    if any(n.op == "get_attr" for n in program.graph.nodes):
        raise ValueError("a trace would hold on to tensors that the body may replace")
    return program


def drop_identities(graph: fx.Graph, modules: dict[str, Any]) -> None:
    """Takes out what passes on what it is given."""
    for node in list(graph.nodes):
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        dropout = isinstance(module, nn.Dropout) and not (module.training and module.p)
        if isinstance(module, nn.Identity) or dropout:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _before_relu(relu: fx.Node, modules: dict[str, Any]) -> tuple[fx.Node | None, fx.Node | None]:
    """The batch norm whose result, and the sum of it and a shortcut that, only this ReLU reads."""
    if not _is_relu(relu, modules) or not relu.args:
        return None, None
    before = relu.args[0]
    if not isinstance(before, fx.Node) or not feeds_only(before, relu):
        return None, None
    if _is_norm(before, modules):
        return before, None
    if not _calls(before, _ADD) or before.kwargs or len(before.args) != 2:
        return None, None
    left, right = before.args
    if left is right or not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return None, None
    if feeds_only(left, before) and _is_norm(left, modules):
        return left, before
    changes = _calls(before, _ADD_IN_PLACE) and not feeds_only(left, before)
    if not changes and feeds_only(right, before) and _is_norm(right, modules):
        return right, before
    return None, None


def _is_relu(node: fx.Node, modules: dict[str, Any]) -> bool:
    if node.op == "call_module":  # by its kind: a module's name says nothing
        return type(modules.get(str(node.target))) is nn.ReLU
    return _calls(node, _RELU)


def _calls(node: fx.Node, known: tuple[Any, ...]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in known


def _is_norm(node: fx.Node, modules: dict[str, Any]) -> bool:
    """Whether a node is a batch norm of the kind that the kernels compute."""
    norm = modules.get(str(node.target)) if node.op == "call_module" else None
    if type(norm) is not nn.BatchNorm2d or len(node.args) != 1:
        return False
    return norm.affine and norm.track_running_stats and norm.momentum is not None


def feeds_only(node: fx.Node, user: fx.Node) -> bool:
    """Whether nothing else reads a result."""
    return list(node.users) == [user]


_KNOWN: WeakKeyDictionary[nn.Module, Fused | None] = WeakKeyDictionary()


def training_copy(body: nn.Module, device: torch.device) -> Callable[[Tensor], Tensor] | None:
    """A callable that trains `body` with fewer passes over memory, or None where it has none.

    Hooks on the modules that it joins, and on those that only hold others, are not called.
    """
    if device.type != _DEVICE or not available():
        return None
    if body not in _KNOWN:
        try:
            made = _fuse(body)
            _KNOWN[body] = made if made.norms else None
        except Exception:  # tracing fails in many ways; the plain body computes the same
            _KNOWN[body] = None
    return _KNOWN[body]


@lru_cache
def _kernels() -> ModuleType | None:
    try:
        from sebra_kernels import norm_relu
    except ImportError:  # Triton is not made for every system
        return None
    return norm_relu


def available() -> bool:
    """Whether the kernels can be compiled for the current GPU and compute what torch computes."""
    return torch.cuda.is_available() and _agrees(torch.cuda.current_device())


@lru_cache
def _agrees(device: int) -> bool:
    try:
        return all(
            _error(torch.device("cuda", device), adds) < _TOLERANCE for adds in (False, True)
        )
    except Exception:  # no Triton, no compiler for its launchers, an older GPU: torch has it all
        return False


@torch.enable_grad()
def _error(device: torch.device, adds: bool) -> float:
    """The largest relative difference between `FusedNorm` and torch, gradients included."""
    kernels = _kernels()
    if kernels is None:
        return float("inf")
    wave = torch.arange(3 * 4 * 25 * 64, device=device).mul(1.7).sin()
    maps = wave.bfloat16().view(3, 4, 5, 5, 64).permute(0, 1, 4, 2, 3)
    results = []
    for fused in (True, False):
        leaves = [t.clone().requires_grad_() for t in (maps[0], maps[1], wave[:64], wave[-64:])]
        x, z, weight, bias = leaves
        running = (wave[:64].clone(), wave[:64].clone())
        if fused:
            y = kernels.norm_relu(x, weight, bias, *running, 0.1, 1e-5, z if adds else None)
        else:
            y = F.batch_norm(x.float(), *running, weight, bias, True, 0.1, 1e-5)
            y = F.relu(y + z if adds else y)
        y.backward(maps[2].to(y.dtype))
        results.append([y.detach(), *running, *(t.grad for t in leaves if t.grad is not None)])
    pairs = [(f.float(), e.float()) for f, e in zip(*results, strict=True)]
    return max(float((f - e).norm() / e.norm()) for f, e in pairs)
