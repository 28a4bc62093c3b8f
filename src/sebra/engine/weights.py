"""Weights that a backbone starts from: of a file, or timm's from the hub."""

from __future__ import annotations

import hashlib
import socket
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from sebra.errors import UsageError
from sebra.places import offline

IMAGENET_CLASSES = 1000
REACH_SECONDS = 3.0  # that the hub may take to answer


@dataclass(frozen=True)
class Weights:
    """Backbone weights, read once and poured into every network that is built."""

    source: str  # what the user named
    digest: str  # identifies the content in cache keys and checkpoints
    tensors: Mapping[str, Tensor]

    def fill(self, body: nn.Module, backbone: str) -> None:
        own = body.state_dict()
        extra = [k for k in self.tensors if k not in own and not is_head(k)]
        missing = [
            k for k in own if k not in self.tensors and not k.endswith("num_batches_tracked")
        ]
        wrong = [k for k in own if k in self.tensors and own[k].shape != self.tensors[k].shape]
        if extra or missing or wrong:
            first = (wrong or missing or extra)[0]
            raise UsageError(
                f"--weights: {self.source} does not fit {backbone}: "
                f"{len(missing)} tensors missing, {len(extra)} unknown, "
                f"{len(wrong)} of another shape (first: {first})"
            )
        body.load_state_dict({k: v for k, v in self.tensors.items() if k in own}, strict=False)


def is_head(key: str) -> bool:
    return key.split(".", 1)[0] in ("fc", "head", "classifier")


def read_weights(file: str) -> Weights:
    """Backbone weights from a safetensors file, as float32."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(file)
    if not path.is_file():
        raise UsageError(f"--weights: no file {file}; give a .safetensors file, `hub` or `none`")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UsageError(f"--weights: {file} is not a safetensors file ({error})") from None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    floats = {k: v.float() if v.is_floating_point() else v for k, v in tensors.items()}
    return Weights(file, digest, floats)


def _spare_retries() -> None:
    """Where the hub cannot be reached, only what was fetched before is looked for."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants

    place = urlsplit(constants.ENDPOINT)
    if getproxies() or not place.hostname:
        return
    try:
        socket.create_connection((place.hostname, place.port or 443), timeout=REACH_SECONDS).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True


def hub_weights(backbone: str) -> Weights | None:
    """timm's pretrained weights, or None where there are none or the hub is out of reach."""
    if offline():
        return None
    import timm

    if not timm.is_model_pretrained(backbone):
        return None
    _spare_retries()
    try:
        model = timm.create_model(backbone, pretrained=True)
    except (OSError, RuntimeError, ValueError):  # no network, no such file on the hub
        return None
    state = OrderedDict(model.state_dict())
    digest = hashlib.sha256(
        repr(sorted((k, tuple(v.shape)) for k, v in state.items() if not is_head(k))).encode()
    )
    tag = str(getattr(model, "default_cfg", {}).get("tag", ""))
    return Weights("hub", f"hub-{backbone}-{tag}-{digest.hexdigest()[:8]}", state)
