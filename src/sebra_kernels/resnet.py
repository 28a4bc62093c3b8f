"""The plain residual networks, number for number as timm makes them.

timm and what it brings take seconds to load, which a command over one of these networks spares.
"""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import Tensor, nn

BLOCKS = {  # of the four stages
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
_OF_TWO = ("resnet18", "resnet34")  # convolutions a block; the others have three


class Block(nn.Module):
    """Convolutions with batch norms; what goes in is added before the last ReLU."""

    def __init__(self, sizes: list[tuple[int, int, int, int]]) -> None:
        """sizes: of each convolution the channels in and out, the kernel and the stride."""
        super().__init__()
        inputs, outputs, stride = sizes[0][0], sizes[-1][1], max(size[3] for size in sizes)
        shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))
        self.numbers = range(1, len(sizes) + 1)
        for i, (before, after, kernel, step) in zip(self.numbers, sizes, strict=True):
            conv = nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False)
            self.add_module(f"conv{i}", conv)
            self.add_module(f"bn{i}", nn.BatchNorm2d(after))
            self.add_module(f"act{i}", nn.ReLU(inplace=True))
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for i in self.numbers:
            out = self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(out))
            if i == self.numbers[-1]:
                out += self.downsample(x) if len(self.downsample) else x
            out = self.get_submodule(f"act{i}")(out)
        return out


class ResNet(nn.Module):
    """Pictures to the mean of the last map; names of parts and weights are timm's."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        two, self.num_features = name in _OF_TWO, 64
        for stage, blocks in enumerate(BLOCKS[name]):
            width, made = 64 << stage, []
            for block in range(blocks):
                stride, before = 2 if stage and not block else 1, self.num_features
                self.num_features = width if two else 4 * width
                plain = [(before, width, 3, stride), (width, width, 3, 1)]
                deep = [(before, width, 1, 1), (width, width, 3, stride)]
                made.append(Block(plain if two else [*deep, (width, 4 * width, 1, 1)]))
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.global_pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.feature_info = [
            {"module": f"layer{k}", "reduction": 2 << k, "num_chs": self.num_features >> (4 - k)}
            for k in range(1, 5)
        ]
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Block):  # at first a block changes nothing
                nn.init.zeros_(module.get_parameter(f"bn{module.numbers[-1]}.weight"))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for k in range(1, 5):
            out = self.get_submodule(f"layer{k}")(out)
        return self.global_pool(out)  # type: ignore[no-any-return]


@cache
def _bare(name: str) -> ResNet:
    """The network without numbers."""
    with torch.device("meta"):
        return ResNet(name)


def body(name: str, filled: bool) -> ResNet | None:
    """The network of this name; unfilled where its weights are read next: to draw them is slow."""
    if name not in BLOCKS or filled:
        return ResNet(name) if name in BLOCKS else None
    made = copy.deepcopy(_bare(name))
    for module in made.modules():  # `to_empty` would load torch's symbolic shapes: two seconds
        for key, value in module.named_parameters(recurse=False):
            module.register_parameter(key, nn.Parameter(torch.empty(value.shape)))
        for key, known in module.named_buffers(recurse=False):
            module.register_buffer(key, torch.zeros(known.shape, dtype=known.dtype))
    return made
