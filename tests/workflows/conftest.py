"""Small sources that several workflows are tested on."""

from __future__ import annotations

import pytest

import miniatures
from sebra.workflows.prepared import Source


@pytest.fixture
def features(tmp_path):
    return Source(str(miniatures.npz(tmp_path / "two.npz")), device="cpu")


@pytest.fixture
def cars(tmp_path):
    """UrbanCars in miniature, to fine-tune a network that has weights."""
    from safetensors.torch import save_file

    from sebra.engine.networks import NetworkSpec, build

    network = build(NetworkSpec("test_resnet", (3, 32, 32), 2), 5)
    file = tmp_path / "weights.safetensors"
    save_file({k: v.contiguous() for k, v in network.body.state_dict().items()}, file)
    return Source(
        f"urbancars:{miniatures.urbancars(tmp_path / 'cars', aligned=8)}",
        device="cpu",
        mode="finetune",
        backbone="test_resnet",
        weights=str(file),
    )
