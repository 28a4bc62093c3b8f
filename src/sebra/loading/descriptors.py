"""Plain figures of pictures: what can be said of one without knowing what it shows.

Colour, light, sharpness, the border and nine places of a picture, each by a few figures with names.
A nuisance (a wrong white balance, a watermark, a saved-again JPEG) is nearly all there is to see in
one of these views, while it is little beside an object in the features of a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.loading.cache import user_cache
from sebra.loading.inputs import Inputs

VERSION = 3  # raise it when the same pictures would give other figures
COLOUR, LIGHT, SHARPNESS, BORDER = "colour", "light", "sharpness", "border"
PLACES = tuple(
    " ".join(filter(None, (row, column))) or "centre"
    for row in ("top", "", "bottom")
    for column in ("left", "", "right")
)
STRIP = 0.2  # of a side: how wide places other than the centre are
_EDGE = 0.04  # of a side: how thick the border is
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
_DARK = 1e-4  # added before a logarithm: well below one step of 255
_SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_STEPS = (1, 2, 4, 8)  # pixels between which differences are taken
_TONES = 32  # pixels along a side, at most, that shares are counted over
_BANDS = 12  # of the spectrum of edges along a side: a grid of blocks is a line in one of them
_BATCH = 32  # larger ones leave the processor's cache
_ENDS = ("black", "white", "full red", "full green", "full blue", "tones left out")
_RATIOS = ("red to green", "blue to green")
_SIDES = ("top edge", "bottom edge", "left edge", "right edge")
_OF_PLACE = (
    "red",
    "green",
    "blue",
    *_RATIOS,
    "contrast",
    "edges across",
    "edges along",
    "5% darkest",
    "middle tone",
    "5% brightest",
)

_VIEWS: dict[str, tuple[str, ...]] = {
    COLOUR: (
        *(f"{of}, {ratio}" for of in ("mean", "edges", "contrast") for ratio in _RATIOS),
        *(f"{of}, {ratio}" for of in ("middle tone", "5% brightest") for ratio in _RATIOS),
        "mean saturation",
        "5% least saturated",
        "middle saturation",
        "5% most saturated",
    ),
    LIGHT: ("mean", "contrast", *(f"tone at {s:.0%}" for s in _SHARES), *_ENDS),
    SHARPNESS: (
        *(f"{axis} at {s} px" for s in _STEPS for axis in ("edges across", "edges along")),
        *(f"edge at {s:.0%}" for s in _SHARES[1:]),
        *(f"{axis}, band {b + 1}" for axis in ("columns", "rows") for b in range(_BANDS)),
    ),
    BORDER: tuple(f"{side}, {name}" for side in _SIDES for name in _OF_PLACE),
    **dict.fromkeys(PLACES, _OF_PLACE),
}
FIGURES = tuple(f"{view}: {name}" for view, names in _VIEWS.items() for name in names)


def columns_of(view: str) -> list[int]:
    """The columns of a view among the figures."""
    return [i for i, name in enumerate(FIGURES) if name.startswith(f"{view}: ")]


def described(
    inputs: Inputs, key: str, progress: Callable[[int, int], None] | None = None
) -> npt.NDArray[np.float32]:
    """The figures of every picture, n x `FIGURES`, from the cache where they are there.

    key: identifies the pictures.
    """

    def fill(out: npt.NDArray[np.float32]) -> dict[str, object]:
        for rows in torch.split(torch.arange(len(inputs), device=inputs.device), _BATCH):
            first = int(rows[0])
            out[first : first + len(rows)] = describe(inputs.batch(rows)).cpu().numpy()
            if progress is not None:
                progress(first + len(rows), len(inputs))
        return {}

    parts: list[str | int | bytes] = [VERSION, key, str(inputs.shape)]
    return user_cache().array("figures", parts, (len(inputs), len(FIGURES)), np.float32, fill)[0]


@torch.no_grad()
def describe(pictures: Tensor) -> Tensor:
    """n x `FIGURES` of pictures (uint8, n x 3 x height x width)."""
    x = torch.empty(pictures.shape, device=pictures.device).copy_(pictures).div_(255)
    luma = (x * torch.tensor(_LUMA, device=x.device)[:, None, None]).sum(1)
    seen = torch.cat([x, luma[:, None]], 1)
    thin = _places(seen, _EDGE)
    edges = (torch.cat(thin[0:3], 3), torch.cat(thin[6:9], 3), thin[3], thin[5])
    parts = [
        _colour(x),
        _light(pictures, luma),
        _sharpness(luma),
        *map(_place, edges),
        *map(_place, _places(seen, STRIP)),
    ]
    return torch.cat(parts, 1)


def _colour(x: Tensor) -> Tensor:
    across, along = (F.mse_loss(*pair, reduction="none") for pair in _apart(x, 1))
    edges = across.mean((2, 3)) + along.mean((2, 3))
    tones = _thinned(x)
    largest = tones.amax(1)
    saturation = ((largest - tones.amin(1)) / largest.clamp_min(1 / 255)).flatten(1)
    tone = torch.stack([_at(tones[:, c].flatten(1), (0.5, 0.95)) for c in range(3)], 1)
    spreads = (x.mean((2, 3)), edges.sqrt(), tones.std((2, 3)), tone[:, :, 0], tone[:, :, 1])
    ratios = [_ratios(spread) for spread in spreads]
    return torch.cat([*ratios, saturation.mean(1)[:, None], _at(saturation, (0.05, 0.5, 0.95))], 1)


def _light(pictures: Tensor, luma: Tensor) -> Tensor:
    tones = _thinned(luma).flatten(1)
    full = (pictures > 252).float().mean((2, 3))
    ends = [(tones < 4 / 255).float().mean(1), (tones > 251 / 255).float().mean(1), *full.unbind(1)]
    figures = [luma.mean((1, 2)), _log(tones.std(1))]
    ends = [_log(end) for end in ends]
    return torch.cat(
        [
            torch.stack(figures, 1),
            _at(tones, _SHARES),
            torch.stack([*ends, _left_out(_thinned(pictures, 4 * _TONES))], 1),
        ],
        1,
    )


def _left_out(x: Tensor) -> Tensor:
    """The share of the 256 tones that no pixel has, of those between two that some have."""
    n = len(x)
    tones = x.long().flatten(2) + 256 * torch.arange(3, device=x.device)[:, None]
    used = torch.zeros(n, 3 * 256, device=x.device).scatter_(1, tones.flatten(1), 1.0)
    used = used.view(n, 3, 256)
    inside = used.cummax(2).values * used.flip(2).cummax(2).values.flip(2)
    return (1 - used.sum(2) / inside.sum(2)).mean(1)


def _sharpness(luma: Tensor) -> Tensor:
    scales = []
    for step in _STEPS:
        apart = _apart(luma, min(step, min(luma.shape[1:]) - 1))
        scales += [_log(F.mse_loss(*p, reduction="none").mean((1, 2)).sqrt()) for p in apart]
    across, along = (a - b for a, b in _apart(luma, 1))
    strength = (_thinned(across[:, 1:]).abs() + _thinned(along[:, :, 1:]).abs()).flatten(1)
    bends = (across[..., 1:], across[..., :-1]), (along[:, 1:], along[:, :-1])
    bend = [F.l1_loss(*p, reduction="none").mean(dim) for dim, p in enumerate(bends, 1)]
    return torch.cat(
        [torch.stack(scales, 1), _log(_at(strength, _SHARES[1:])), *map(_spectrum, bend)], 1
    )


def _spectrum(profile: Tensor) -> Tensor:
    """How regular edges are along a side, in bands of their frequency."""
    found = torch.fft.rfft(profile - profile.mean(1, keepdim=True), dim=1).abs()
    found = _log(found / found.mean(1, keepdim=True).clamp_min(_DARK))
    return F.adaptive_max_pool1d(found[:, None], _BANDS)[:, 0]


def _places(x: Tensor, strip: float) -> list[Tensor]:
    """Three times three parts of the pictures, those at the sides as wide as the strip."""
    height, width = (max(1, round(strip * side)) for side in x.shape[2:])
    rows = x.tensor_split([height, x.shape[2] - height], 2)
    return [part for row in rows for part in row.tensor_split([width, x.shape[3] - width], 3)]


def _place(seen: Tensor) -> Tensor:
    """The figures of a part: red, green, blue and light of its pixels."""
    mean, luma = seen[:, :3].mean((2, 3)), seen[:, 3]
    spread = _log(luma.flatten(1).std(1, correction=0))
    moved = (F.l1_loss(*pair, reduction="none").flatten(1).sum(1) for pair in _apart(luma, 1))
    edges = [_log(total / luma[0].numel()) for total in moved]
    tones = _at(_thinned(luma).flatten(1), (0.05, 0.5, 0.95))
    return torch.cat([mean, _ratios(mean), torch.stack([spread, *edges], 1), tones], 1)


def _apart(x: Tensor, step: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Pairs of pixels so far apart, across and along a column."""
    return (x[..., step:], x[..., :-step]), (x[..., step:, :], x[..., :-step, :])


def _ratios(values: Tensor) -> Tensor:
    """Of n x 3 channels: red and blue to green."""
    red, green, blue = _log(values).unbind(1)
    return torch.stack([red - green, blue - green], 1)


def _at(values: Tensor, shares: Sequence[float]) -> Tensor:
    """The values below which these shares of a row lie."""
    if values.device.type == "cpu":  # several times as quick as torch's, which keeps places too
        ordered = torch.from_numpy(np.sort(values.numpy(), axis=1))
    else:
        ordered = values.sort(1).values
    where = [min(int(share * values.shape[1]), values.shape[1] - 1) for share in shares]
    return ordered[:, where]


def _thinned(x: Tensor, most: int = _TONES) -> Tensor:
    """One pixel of every few, so many along a side at most."""
    step = -(-max(x.shape[-2:]) // most)
    return x[..., ::step, ::step]


def _log(x: Tensor) -> Tensor:
    return (x + _DARK).log()
