"""The loop that all methods share: the rate of every step, and which weights are kept."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from debiasing.toys import AT_ONCE, SETTINGS, features, fit, images
from sebra.debiasing.last_layer import set_probe
from sebra.debiasing.method import WeightMean
from sebra.debiasing.registry import METHODS, method_class
from sebra.debiasing.selection import Selector
from sebra.engine import step as steps
from sebra.engine.passes import predict
from sebra.engine.session import Session
from sebra.errors import UsageError

TWICE = ("jtt",)  # trains two networks, one after the other


def test_the_mean_of_weights_is_that_of_a_loop():
    network = torch.nn.BatchNorm1d(3)
    mean = WeightMean(network)
    mean.horizon = 20.0
    expected = {}
    for count in range(60):
        with torch.no_grad():
            network.weight.add_(torch.rand(3))
            network.running_var.mul_(1.1)
            network.num_batches_tracked.add_(1)
        mean.update_parameters(network)
        decay = min(math.exp(-1 / mean.horizon), count / (10 + count))
        for k, v in network.state_dict().items():
            expected[k] = decay * expected.get(k, 0) + (1 - decay) * v.double()
    found = mean.module.state_dict()
    for k in ("weight", "running_var"):
        torch.testing.assert_close(found[k].double(), expected[k], rtol=1e-5, atol=0)
    assert int(mean.module.num_batches_tracked) == 60


@pytest.mark.parametrize("name", sorted(set(METHODS) - AT_ONCE))
def test_every_method_keeps_the_mean_of_its_weights(name, monkeypatch):
    """What is validated and kept is the mean; training goes on from the weights themselves."""
    shown, trained = [], []
    run = steps.TrainStep._run

    def noted(self, index, rand, content):
        out = run(self, index, rand, content)
        trained.append((id(self.network), [v.clone() for v in self.network.state_dict().values()]))
        return out

    monkeypatch.setattr(steps.TrainStep, "_run", noted)

    def validate(network):
        shown.append([v.clone() for v in network.state_dict().values()])
        return float(len(shown)), {}

    cls, toy = method_class(name), features()
    own = {"upsample": 1, "identify_epochs": 1} if name == "jtt" else {}
    config = cls.config_class(**{**SETTINGS["features"], "epochs": 3, "average": 0.5, **own})
    method = cls(config)
    help_ = toy.help(method.needs, Selector(validate, "last"))
    network = method.fit(toy.train, help_, Session())
    kept = list(network.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(kept, shown[-1], strict=True))
    last = next(weights for network_, weights in reversed(trained) if network_ == id(network))
    assert not all(torch.equal(a, b) for a, b in zip(kept, last, strict=True))


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
