"""Networks: timm backbones, a small one for tiny images, text encoders, a head over features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sebra import processes
from sebra.engine.bodies import random_body, small_body
from sebra.engine.copies import known_body, training_copy
from sebra.engine.weights import Weights
from sebra.errors import UsageError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
SMALL, RANDOM, LINEAR = "small", "random", "linear"


# That a description of a model may ask for.
_MOST, _MOST_WEIGHTS, _MOST_CELLS, _MOST_SIDE = 2**24, 2**31, 64, 2**12


@dataclass(frozen=True)
class NetworkSpec:
    """All that is needed to build a network again.

    backbone: a timm name, `small` (convolutions from scratch for tiny images), `random` (fixed
    random convolutions, features mode only), `linear` (a head over features) or the folder or hub
    name of a transformers encoder, whose configuration (JSON) is then in `encoder`.
    inputs: (3, height, width), (d,) or, of text, (token rows, length). weights: a file, `hub`,
    `none` or an encoder's name.
    hidden: width of one hidden layer between features and head; 0 for none. heads: last layers;
    more than one makes an `EnsembleHead`. prototypes: of each class, in a `PrototypeHead`.
    cells: side of the grid of cells that follow the penultimate features (`patches.Celled`).
    seen: the side that pictures are enlarged to before the body sees them; 0 for as they are.
    """

    backbone: str
    inputs: tuple[int, ...]
    classes: int
    weights: str = "none"
    hidden: int = 0
    heads: int = 1
    encoder: str = ""
    prototypes: int = 0
    cells: int = 0
    seen: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> NetworkSpec:
        """From a description; a size that nobody trains with is a `ValueError`."""
        spec = NetworkSpec(**{**values, "inputs": tuple(values["inputs"])})
        heads = max(spec.heads, spec.prototypes)
        sizes = (*spec.inputs, spec.classes, spec.hidden + 1, spec.heads, spec.prototypes + 1)
        if not (0 <= int(spec.cells) <= _MOST_CELLS and 0 <= int(spec.seen) <= _MOST_SIDE):
            raise ValueError(f"a network with {spec.cells} cells, pictures of {spec.seen} px")
        if not 1 <= len(spec.inputs) <= 3 or not all(1 <= int(n) <= _MOST for n in sizes):
            raise ValueError(f"a network of {spec.inputs} inputs, {spec.classes} classes")
        if spec.inputs[0] * max(spec.hidden, spec.classes) * heads > _MOST_WEIGHTS:
            raise ValueError("a network with more weights than memory")
        return spec


class EnsembleHead(nn.Module):
    """Several last layers and a classifier that says how much each counts for a sample."""

    def __init__(self, width: int, classes: int, heads: int) -> None:
        super().__init__()
        self.shape = (heads, classes)
        self.layers = nn.Linear(width, heads * classes)
        self.domain = nn.Linear(width, heads)

    def each(self, z: Tensor) -> Tensor:
        """The logits of every last layer: n x heads x classes."""
        out: Tensor = self.layers(z)
        return out.view(-1, *self.shape)

    def forward(self, z: Tensor) -> Tensor:
        weights = self.domain(z).softmax(1)
        out: Tensor = (self.each(z) * weights[:, :, None]).sum(1)
        return out


class PrototypeHead(nn.Module):
    """Several prototypes of each class; their probabilities, by distance, are averaged."""

    def __init__(self, width: int, classes: int, members: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.zeros(members, classes, width))
        self.scales = nn.Parameter(torch.zeros(members))

    def forward(self, z: Tensor) -> Tensor:
        z, p = (nn.functional.normalize(t.float(), dim=-1) for t in (z, self.prototypes))
        far = (2 - 2 * torch.einsum("nd,mcd->nmc", z, p)).clamp_min(1e-6).sqrt()
        return (-self.scales[:, None] * far).log_softmax(2).logsumexp(1)


class Network(nn.Module):
    """Normalise, embed, classify. Takes raw inputs: uint8 or 0..255 images, features, tokens."""

    shift: Tensor
    scale: Tensor

    def __init__(self, body: nn.Module, width: int, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.is_image = len(spec.inputs) == 3
        self.is_text = len(spec.inputs) == 2
        shape = (1, 3, 1, 1) if self.is_image else (1, 1 if self.is_text else spec.inputs[0])
        mean, std = torch.zeros(shape), torch.ones(shape)
        if self.is_image:
            mean, std = (torch.tensor(t).view(shape) * 255 for t in (IMAGENET_MEAN, IMAGENET_STD))
        self.register_buffer("shift", mean)
        self.register_buffer("scale", 1.0 / std)
        self.body = body
        self.width = width
        self.head = _last_layer(width, spec)

    def embed(self, x: Tensor) -> Tensor:
        """The penultimate representation."""
        if self.is_text:
            tokens: Tensor = self.body(x)
            return tokens
        if not x.is_floating_point() or x.dtype != self.shift.dtype:
            x = x.to(self.shift.dtype)
        x = (x - self.shift) * self.scale
        if self.spec.seen:
            x = nn.functional.interpolate(x, (self.spec.seen, self.spec.seen), mode="bilinear")
        z: Tensor = (self._trained_body(x.device) or self.body)(x)
        return z

    def _trained_body(self, device: torch.device) -> Callable[[Tensor], Tensor] | None:
        """What computes the body while it is trained, where the device has a quicker way.

        With several processes steps are not captured in a graph, and more launches would cost more.
        """
        if not (self.training and self.is_image) or processes.size() > 1:
            return None
        return training_copy(self.body, device)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a training step of this network."""
        return bool(getattr(self.body, "capturable", True))

    def classify(self, z: Tensor) -> Tensor:
        out: Tensor = self.head(z)
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.embed(x))

    def standardise(self, mean: Tensor, std: Tensor) -> None:
        """Sets the input normalisation of a network over features.

        Divided by the root of the dimension, so that one learning rate suits 64 and 2,048 features.
        """
        std = std * self.spec.inputs[0] ** 0.5
        self.shift.copy_(mean.view_as(self.shift))
        self.scale.copy_((1.0 / std.clamp_min(1e-6)).view_as(self.scale))

    def replace_head(self, heads: int = 1, prototypes: int = 0) -> nn.Module:
        """Replaces the last layer by a fresh one of several; the spec says so from then on."""
        self.spec = replace(self.spec, heads=heads, prototypes=prototypes)
        self.head = _last_layer(self.width, self.spec).to(self.shift.device)
        return self.head


def _last_layer(width: int, spec: NetworkSpec) -> nn.Module:
    head: nn.Module = nn.Linear(width, spec.classes)
    if spec.prototypes:
        head = PrototypeHead(width, spec.classes, spec.prototypes)
    elif spec.heads > 1:
        head = EnsembleHead(width, spec.classes, spec.heads)
    # From an undecided start the first things learned are cues, not accidents of the seed.
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    return head


def build(spec: NetworkSpec, seed: int, weights: Weights | None = None) -> Network:
    """A fresh network; the same spec, seed and weights give the same numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if len(spec.inputs) == 1:
            body, width = _feature_body(spec)
        elif len(spec.inputs) == 2:
            from sebra.engine.text_network import text_body

            body, width = text_body(spec)
        elif spec.backbone == SMALL:
            body, width = small_body()
        elif spec.backbone == RANDOM:
            body, width = random_body()
        else:
            body = _pictures(spec.backbone, filled=weights is None)
            width = int(getattr(body, "head_hidden_size", body.num_features))  # type: ignore[arg-type]
        if weights is not None:
            weights.fill(body, spec.backbone)
        if spec.cells:
            from sebra.engine.cells import Celled

            body = Celled(body, width, spec.cells)
            width = body.width
        network = Network(body, width, spec)
    return network.to(memory_format=torch.channels_last) if network.is_image else network


def _feature_body(spec: NetworkSpec) -> tuple[nn.Module, int]:
    if spec.hidden == 0:
        return nn.Identity(), spec.inputs[0]
    return nn.Sequential(nn.Linear(spec.inputs[0], spec.hidden), nn.ReLU()), spec.hidden


def check_backbone(name: str) -> None:
    """Refuses a name that is neither timm's nor one of ours."""
    if name in (SMALL, RANDOM) or known_body(name, filled=False) is not None:
        return
    import timm  # takes seconds, and brings half of torchvision

    if not timm.is_model(name):
        close = ", ".join(timm.list_models(f"*{name}*")[:5]) or "see timm.list_models()"
        raise UsageError(f"--backbone: timm has no model {name!r} (near: {close})")


def fixed_side(name: str) -> int | None:
    """The only side of pictures that a network takes; None where it takes any."""
    if name in (SMALL, RANDOM) or known_body(name, filled=False) is not None:
        return None
    from timm.models import get_pretrained_cfg

    found = get_pretrained_cfg(name)
    return int(found.input_size[-1]) if found is not None and found.fixed_input_size else None


def _pictures(name: str, filled: bool) -> nn.Module:
    body = known_body(name, filled)
    if body is not None:
        return body
    import timm

    check_backbone(name)
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    return model
