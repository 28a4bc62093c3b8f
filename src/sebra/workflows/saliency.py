"""Where each discovered bias sits in the pictures of each class, kept in `saliency.npz`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra.engine.saliency import averaged, contrast_maps, feature_maps, has_maps
from sebra.errors import UsageError, reason
from sebra.ranking.noise import untrained_network
from sebra.ranking.ranking import Ranking
from sebra.runs.meter import Meter
from sebra.samples.table import ImageArray
from sebra.whole import written
from sebra.workflows.prepared import Prepared

FILE = "saliency.npz"
EACH_SIDE = 16  # samples that a map is averaged over
MOST_CLASSES = 12
MOST_PIXELS = 112  # side of the mean picture under the map
RANK = "rank"  # the contrast between both ends of the ranking
Maps = dict[str, dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]]


def find_saliency(ranking: Ranking, prepared: Prepared, meter: Meter) -> Maps:
    """Per bias and class a map (0 to 1) and the mean picture of those that follow it.

    Biases are the stage columns and `rank`, the contrast of the ranking's two ends. Empty for
    data without pictures.
    """
    part, content = prepared._read("train")
    if not isinstance(content, ImageArray):
        return {}
    with meter.phase("saliency"):
        network, out = _network(prepared), Maps()
        if not has_maps(network):
            return {}
        columns = {RANK: ranking.table["spuriosity"].to_numpy()}
        columns |= {name: ranking.table[name].to_numpy() for name in ranking.stages}
        for name, column in columns.items():
            out[name] = {}
            for c, label in enumerate(part.classes[:MOST_CLASSES]):
                found = _one(network, content, column, np.flatnonzero(part.labels == c))
                if found is not None:
                    out[name][label] = found
    return out


def _network(prepared: Prepared) -> Any:
    from sebra.engine import networks
    from sebra.engine.networks import NetworkSpec

    if prepared.mode != "features":
        return untrained_network(prepared.task("train"))
    size = prepared.image_size or 0
    spec = NetworkSpec(prepared.backbone, (3, size, size), 1)
    return networks.build(spec, 0, prepared.weights).to(prepared.device)


def _one(
    network: Any, content: ImageArray, column: npt.NDArray[Any], rows: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    each = min(EACH_SIDE, len(rows) // 2)
    if each < 4:
        return None
    order = rows[np.argsort(-column[rows], kind="stable")]
    if column[order[0]] == column[order[-1]]:
        return None
    chosen = np.concatenate([order[:each], order[-each:]])
    pixels = np.ascontiguousarray(content.pixels[content.rows[chosen]])
    device = next(network.parameters()).device
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(device)
    follows = torch.arange(len(chosen), device=device) < each
    maps = contrast_maps(feature_maps(network, images), follows)
    mean = pixels[:each].astype(np.float32).mean(0)
    step = max(1, mean.shape[0] // MOST_PIXELS)
    heat = averaged(maps[:each]).cpu().numpy().astype(np.float32)
    return heat, mean[::step, ::step].round().astype(np.uint8)


def save_saliency(folder: Path, maps: Maps) -> None:
    """Writes the maps beside the ranking; nothing where there are none."""
    names = [(bias, label) for bias, found in maps.items() for label in found]
    if not names:
        return
    arrays: dict[str, Any] = {"names": np.array(json.dumps(names))}
    for i, (bias, label) in enumerate(names):
        arrays[f"map_{i}"], arrays[f"mean_{i}"] = maps[bias][label]
    with written(folder / FILE) as (temporary,), temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_saliency(folder: Path) -> Maps:
    """What `save_saliency` wrote; empty where it wrote nothing."""
    path = folder / FILE
    if not path.is_file():
        return {}
    out: Maps = {}
    try:
        with np.load(path, allow_pickle=False) as held:
            for i, (bias, label) in enumerate(json.loads(str(held["names"]))):
                heat, mean = held[f"map_{i}"], held[f"mean_{i}"]
                if heat.ndim != 2 or mean.ndim != 3 or mean.dtype != np.uint8:
                    raise ValueError("its arrays are no pictures")
                out.setdefault(str(bias), {})[str(label)] = heat, mean
    except Exception as error:  # a broken archive can make the reader raise nearly anything
        raise UsageError(f"{path}: not the maps of a run ({reason(error)})") from error
    return out
