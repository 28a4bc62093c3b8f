"""The loop that all methods share: the rate of every step, and which weights are kept."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from debiasing.toys import AT_ONCE, SETTINGS, features, fit, images
from sebra.debiasing.last_layer import set_probe
from sebra.debiasing.registry import METHODS, method_class
from sebra.engine.passes import predict
from sebra.errors import UsageError

TWICE = ("jtt",)  # trains two networks, one after the other


def probed(toy):
    """The last layer that scikit-learn finds, as it stands over raw embeddings."""
    network = toy.train.network()
    with torch.no_grad():
        z = network.embed(toy.train.batch(torch.arange(len(toy.train))))
    x = (z - z.mean(0)) / z.std(0)
    found = LogisticRegression(C=0.1, tol=1e-8, max_iter=10_000).fit(x, toy.train.targets)
    weight = torch.from_numpy(found.coef_).float() / z.std(0)
    return weight, torch.from_numpy(found.intercept_).float() - weight @ z.mean(0)


@pytest.mark.parametrize("name", sorted(set(METHODS) - AT_ONCE - {"lle"}))
def test_a_probe_is_where_the_last_layer_starts(name):
    toy = features()
    settings = {**SETTINGS["features"], "lr": 1e-12, "epochs": 1, "hidden": 0}
    _, network = fit(method_class(name), toy, **settings, start="probe")
    weight, bias = probed(toy)
    shift = bias.mean() - network.head.bias.detach().mean()  # one number more says nothing
    torch.testing.assert_close(network.head.weight.detach(), weight, rtol=0.01, atol=0.01)
    torch.testing.assert_close(network.head.bias.detach() + shift, bias, rtol=0.01, atol=0.01)
    _, plain = fit(method_class(name), toy, **settings)
    assert float(plain.head.weight.detach().abs().max()) < 1e-6


def test_a_random_start_is_of_the_seed_and_bounded_as_in_pytorch():
    toy = features()
    settings = {**SETTINGS["features"], "lr": 1e-12, "epochs": 1, "hidden": 0}
    heads = [fit(method_class("jtt"), toy, **settings, start="random")[1].head for _ in range(2)]
    torch.testing.assert_close(heads[0].weight, heads[1].weight)
    bound = toy.train.network().width ** -0.5
    for values in (heads[0].weight.detach(), heads[0].bias.detach()):
        assert float(values.abs().min()) > 0
        assert float(values.abs().max()) <= bound + 1e-6
    assert float(heads[0].weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.35)


def test_a_probe_is_for_one_last_layer():
    with pytest.raises(UsageError, match="start=probe: this method has several last layers"):
        fit(method_class("lle"), features(), **SETTINGS["features"], start="probe")


def test_a_probe_is_of_the_network_as_it_is():
    """Over images it sees the body before training, in evaluation mode and without augmentation."""
    toy = images()
    _, network = fit(
        method_class("erm"), toy, **{**SETTINGS["images"], "lr": 1e-12, "epochs": 1}, start="probe"
    )
    fresh = toy.train.network()
    set_probe(fresh, toy.train)
    torch.testing.assert_close(network.head.weight, fresh.head.weight)
    logits = predict(fresh.eval(), toy.train, torch.arange(len(toy.train)))
    assert float((logits.argmax(1) == toy.train.targets).float().mean()) > 0.6
