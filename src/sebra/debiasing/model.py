"""A trained model that can be saved, loaded and asked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sebra.checksums import of_json, of_tensors
from sebra.engine import networks
from sebra.engine.device import autocast, choose_device
from sebra.engine.networks import Network, NetworkSpec
from sebra.errors import UsageError, reason
from sebra.loading.texts import Tokeniser
from sebra.samples.open import read_unlabelled
from sebra.samples.table import Content, FeatureArray, ImageFiles, Texts
from sebra.whole import json_of, written

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
VOCABULARY = "tokenizer.json"  # of a model that takes text
FORMAT = 1
SHOWN = ("average", "id_accuracy", "worst_group")  # figures in a notebook
IMAGE_PREPROCESSING = "RGB, squashed to the input size, 0..255; normalised by the network"


class Stacked(nn.Module):
    """A frozen backbone with a head that was trained on its features, as one network."""

    def __init__(self, backbone: Network, top: Network) -> None:
        super().__init__()
        self.backbone = backbone
        self.top = top

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.top(self.backbone.embed(x))
        return out


@dataclass(repr=False)
class Model:
    """A classifier with its classes and preprocessing; takes raw images, texts or features."""

    network: nn.Module
    classes: tuple[str, ...]
    specs: tuple[NetworkSpec, ...]  # one, or backbone and top
    details: dict[str, Any] = field(default_factory=dict)
    tokeniser: Tokeniser | None = None

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one input: (3, height, width), (d,) or, of text, (token rows, length)."""
        return self.specs[0].inputs

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @torch.no_grad()
    def probabilities(self, content: Any, batch: int = 256) -> npt.NDArray[np.float32]:
        """Class probabilities: of an array of features, of uint8 images (n x h x w x 3), of a
        sequence of image files or PIL images, or, from a model of text, of a sequence of texts or
        of sentence pairs. A text or a path is a form of DATA: a folder, a table, one image."""
        x = self._array(content)
        self.network.eval()
        out = []
        for start in range(0, len(x), batch):
            part = torch.from_numpy(np.ascontiguousarray(x[start : start + batch])).to(self.device)
            if part.dim() == 4:
                part = part.permute(0, 3, 1, 2)
            with autocast(self.device):
                out.append(self.network(part).float().softmax(1).cpu())
        if not out:
            return np.zeros((0, len(self.classes)), dtype=np.float32)
        return torch.cat(out).numpy()

    def predict(self, content: Any) -> npt.NDArray[np.object_]:
        """Class names; `content` as for `probabilities`."""
        best = self.probabilities(content).argmax(1)
        names: npt.NDArray[np.object_] = np.asarray(self.classes, dtype=object)[best]
        return names

    def _array(self, content: Any) -> npt.NDArray[Any]:
        if isinstance(content, (str, os.PathLike)):
            content = contents_of(read_unlabelled(os.fspath(content))[1])
        elif hasattr(content, "to_numpy"):  # a pandas frame or column
            content = content.to_numpy() if self.tokeniser is None else content.tolist()
        if self.tokeniser is not None:
            return self.tokeniser.encode(_texts(content))
        if not isinstance(content, np.ndarray):
            return self._images(content)
        wanted = self.inputs if len(self.inputs) == 1 else (*self.inputs[1:], 3)
        if tuple(content.shape[1:]) != tuple(wanted):
            if content.ndim == 4 and len(self.inputs) == 3:
                return self._images(list(content))
            raise UsageError(f"the model takes inputs of shape {wanted}, not {content.shape[1:]}")
        return content

    def _images(self, content: Sequence[Any]) -> npt.NDArray[np.uint8]:
        from PIL import Image

        from sebra.samples.picture import decode_image, to_square

        if len(self.inputs) != 3:
            raise UsageError("the model takes features (an n x d array), not images")
        size = self.inputs[1]
        rows = []
        for item in content:
            if isinstance(item, (str, os.PathLike)):
                rows.append(decode_image(Path(item), size))
            else:
                image = item if isinstance(item, Image.Image) else Image.fromarray(item)
                rows.append(to_square(image, size))
        return np.stack(rows) if rows else np.zeros((0, size, size, 3), dtype=np.uint8)

    def __repr__(self) -> str:
        names = " + ".join(spec.backbone for spec in self.specs)
        takes = {1: "features", 2: "texts", 3: "pictures"}[len(self.inputs)]
        return f"Model({names}, takes {takes} {self.inputs}, classes: {', '.join(self.classes)})"

    def _repr_html_(self) -> str:
        scores = self.details.get("metrics", {})
        rows = {"model": repr(self), "method": self.details.get("method", "–")}
        for name in ("plain", "evaluation"):
            found = scores.get(name) or {}
            figures = [f"{k.replace('_', ' ')} {found[k]:.1f} %" for k in SHOWN if k in found]
            if figures:
                rows["plain training" if name == "plain" else "scores"] = ", ".join(figures)
        lines = (f"<tr><th>{k}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items())
        return f"<table>{''.join(lines)}</table>"

    def save(self, folder: str | Path) -> None:
        """Writes `model.safetensors` and `model.json`, each whole or not at all."""
        from safetensors.torch import save_file

        where = Path(folder)
        state = {k: v.detach().cpu().contiguous() for k, v in self.network.state_dict().items()}
        vocabulary = None if self.tokeniser is None else self.tokeniser.vocabulary
        description = {
            "format": FORMAT,
            "classes": list(self.classes),
            "networks": [s.to_dict() for s in self.specs],
            "preprocessing": IMAGE_PREPROCESSING,
            **self.details,
        }
        if self.tokeniser is not None:
            description["preprocessing"] = {
                "length": self.tokeniser.length,
                "pair": self.tokeniser.pair,
                "apart": self.tokeniser.apart,
            }
        description["checksum"] = _checksum(description, state, vocabulary)
        names = (WEIGHTS, DESCRIPTION, *(() if vocabulary is None else (VOCABULARY,)))
        with written(*(where / name for name in names)) as passing:
            save_file(state, passing[0])
            passing[1].write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
            if vocabulary is not None:
                passing[2].write_text(vocabulary, encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Model:
        """A model from a run folder; nothing in it is executed."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        where = Path(folder)
        if not (where / DESCRIPTION).is_file() or not (where / WEIGHTS).is_file():
            raise UsageError(f"{folder}: no {WEIGHTS} and {DESCRIPTION} here; give a debias run")
        try:
            found: Mapping[str, Any] = json_of((where / DESCRIPTION).read_text("utf-8"))
            specs = tuple(NetworkSpec.from_dict(s) for s in found["networks"])
            classes = tuple(str(c) for c in found["classes"])
            state = load_file(where / WEIGHTS)
            tokeniser = _read_tokeniser(where, specs[0], found["preprocessing"])
            vocabulary = None if tokeniser is None else tokeniser.vocabulary
            if found.get("checksum", "") not in ("", _checksum(found, state, vocabulary)):
                raise ValueError("damaged: its files are not what was written")
            network = assemble([networks.build(s, 0) for s in specs])
            network.load_state_dict(state)
        except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError, OSError) as error:
            raise UsageError(f"{folder}: not a model of Sebra ({reason(error)})") from None
        known = {"format", "classes", "networks", "preprocessing", "checksum"}
        details = {k: v for k, v in found.items() if k not in known}
        return cls(network.to(choose_device(device)).eval(), classes, specs, details, tokeniser)


def _checksum(
    description: Mapping[str, Any], state: Mapping[str, Tensor], vocabulary: str | None
) -> str:
    """Of all files of a model together; a model is damaged where any of them is."""
    plain = {k: v for k, v in description.items() if k != "checksum"}
    return of_tensors(state, of_json(plain), vocabulary or "")


def _read_tokeniser(where: Path, spec: NetworkSpec, found: Any) -> Tokeniser | None:
    if len(spec.inputs) != 2:
        return None
    vocabulary = (where / VOCABULARY).read_text(encoding="utf-8")
    tokeniser = Tokeniser(
        vocabulary, int(found["length"]), bool(found["pair"]), bool(found["apart"])
    )
    if tokeniser.shape != spec.inputs:
        raise ValueError(f"its tokens have shape {tokeniser.shape}, not {spec.inputs}")
    return tokeniser


def _texts(content: Any) -> Texts:
    """Texts as they are, or from a sequence of texts or of pairs of them."""
    if isinstance(content, Texts):
        return content
    items = list(content)
    if all(isinstance(item, str) for item in items):
        return Texts(tuple(items))
    if not all(isinstance(i, (tuple, list)) and [type(t) for t in i] == [str, str] for i in items):
        raise UsageError("the model takes texts: a sequence of str, or of (str, str) pairs")
    return Texts(tuple(a for a, _ in items), tuple(b for _, b in items))


def contents_of(content: Content) -> Any:
    """What a model takes of a content: files, pixels, values or texts."""
    if isinstance(content, ImageFiles):
        return content.paths
    if isinstance(content, Texts):
        return content
    values: npt.NDArray[Any] = (
        content.values if isinstance(content, FeatureArray) else content.pixels
    )
    return np.asarray(values[content.rows])


def assemble(parts: Sequence[Network]) -> nn.Module:
    """One network as it is, or a backbone with its top."""
    return parts[0] if len(parts) == 1 else Stacked(parts[0], parts[1])
