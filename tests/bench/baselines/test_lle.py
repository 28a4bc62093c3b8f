from __future__ import annotations

import pytest
import torch

from debiasing.toys import SETTINGS, features, fit, images
from sebra.engine.networks import EnsembleHead, NetworkSpec, build
from sebra_bench.baselines import lle as module
from sebra_bench.baselines.lle import Lle, domains_of, shifted

KINDS = {"features": (features, 4), "images": (images, 5)}


def test_each_block_of_a_batch_undergoes_its_own_shift():
    x, rand = torch.zeros(10, 2), torch.zeros(10, 4)
    shifts = [lambda x, r: x + 1, lambda x, r: x + 2]
    domains = domains_of(10, 3)
    assert shifted(x, rand, shifts)[:, 0].tolist() == domains.double().tolist()
    assert torch.bincount(domains).min() >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_each_last_layer_learns_from_its_own_shift_alone(monkeypatch, kind):
    """A head whose shift is missing from training stays where it began, at zero."""
    make, heads = KINDS[kind]
    missing = 2
    plan = module.domains_of

    def without(batch, count):
        domains = plan(batch, count)
        return torch.where(domains == missing, 0, domains)

    settings = {**SETTINGS[kind], "epochs": 1}
    _, network = fit(Lle, make(), **settings)
    assert isinstance(network.head, EnsembleHead)
    rows = network.head.layers.weight.view(heads, -1)
    assert (rows.abs().sum(1) > 0).all()
    monkeypatch.setattr(module, "domains_of", without)
    _, network = fit(Lle, make(), **settings)
    moved = network.head.layers.weight.view(heads, -1).abs().sum(1) > 0
    assert moved.tolist() == [k != missing for k in range(heads)]


def test_the_shifts_are_told_apart():
    toy = images()
    method, network = fit(Lle, toy, **{**SETTINGS["images"], "epochs": 25})
    task = toy.train
    index = torch.arange(150)
    shifts = method.shifts(task, network)
    x = shifted(task.batch(index).float(), torch.rand(150, 4), shifts)
    network.eval()
    with torch.no_grad():
        told = network.head.domain(network.embed(x)).argmax(1)
    right = (told == domains_of(150, 5)).double().mean().item()
    assert right > 0.4  # chance: 0.2


def test_the_ensemble_is_a_weighted_mean_of_its_layers():
    torch.manual_seed(0)
    head = EnsembleHead(6, 3, 4)
    z = torch.randn(5, 6)
    out = head(z)
    for i in range(5):
        scores = [(head.domain.weight[k] @ z[i] + head.domain.bias[k]).exp() for k in range(4)]
        weights = [s / sum(scores) for s in scores]
        assert sum(weights).item() == pytest.approx(1.0)
        for c in range(3):
            each = [
                head.layers.weight[3 * k + c] @ z[i] + head.layers.bias[3 * k + c] for k in range(4)
            ]
            expected = sum(w * v for w, v in zip(weights, each, strict=True))
            assert out[i, c].item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_is_rebuilt_from_its_spec(kind):
    make, heads = KINDS[kind]
    toy = make()
    _, network = fit(Lle, toy, **{**SETTINGS[kind], "epochs": 1})
    assert network.spec.heads == heads
    again = build(NetworkSpec.from_dict(network.spec.to_dict()), seed=9)
    again.load_state_dict(network.state_dict())
    x = toy.held.batch(torch.arange(8))
    network.eval()
    again.eval()
    with torch.no_grad():
        assert torch.equal(network(x), again(x))


@pytest.mark.parametrize("kind", KINDS)
def test_every_shift_changes_the_batch_and_keeps_its_shape_and_range(kind):
    make, heads = KINDS[kind]
    toy = make()
    method = Lle(Lle.config_class())
    shifts = method.shifts(toy.train, toy.train.network())
    assert len(shifts) == heads - 1
    x = toy.train.batch(torch.arange(16)).float()
    outs = [shift(x, torch.rand(16, 4)) for shift in shifts]
    for out in outs:
        assert out.shape == x.shape
        assert not torch.equal(out, x)
        assert torch.isfinite(out).all()
        if kind == "images":
            assert out.min() >= 0
            assert out.max() <= 255.5
