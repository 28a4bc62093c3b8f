from __future__ import annotations

import torch

from debiasing.toys import SETTINGS, features, fit, images
from sebra.engine.step import TrainStep
from sebra_bench.baselines import debian as module
from sebra_bench.baselines.debian import Debian, discoverer_network

DEBIAN = {**SETTINGS["features"], "epochs": 6}


def snapshot(network):
    return torch.cat([p.detach().flatten().clone() for p in network.parameters()])


def buffers(network):
    return torch.cat([b.detach().double().flatten().clone() for b in network.buffers()])


def test_each_network_changes_in_its_own_turn_only(monkeypatch):
    """Of both networks' weights and statistics, only those of the one whose turn it is move."""
    turns = []
    plain = TrainStep.__call__
    method = Debian(Debian.config_class(**{**SETTINGS["images"], "epochs": 1}))

    class Watched(module.Turns):
        def __call__(self, index, rand, content=None):
            both = (self.classifier.network, self.discoverer.network)
            for mine, other, step, half in (
                (0, 1, self.classifier, slice(None, len(index) // 2)),
                (1, 0, self.discoverer, slice(len(index) // 2, None)),
            ):
                before = [(snapshot(n), buffers(n)) for n in both]
                out = plain(step, index[half], rand[half])
                after = [(snapshot(n), buffers(n)) for n in both]
                assert torch.equal(before[other][0], after[other][0])
                assert torch.equal(before[other][1], after[other][1])
                assert not torch.equal(before[mine][0], after[mine][0])
                turns.append(mine)
            return out

    monkeypatch.setattr(module, "Turns", Watched)
    toy = images()
    method.fit(toy.train, toy.help(method.needs), module.Session())
    assert turns == [0, 1] * (len(turns) // 2)
    assert len(turns) == 2 * 5  # 160 samples in batches of 32, two turns each


def test_the_turn_of_the_step_is_classifier_then_discoverer():
    log = []

    def step(name):
        network = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

        def loss(index, rand):
            log.append((name, index.tolist()))
            return network(torch.ones(1, 1)).sum()

        return TrainStep(network, optimizer, loss, torch.device("cpu"))

    module.Turns(step("classifier"), step("discoverer"))(torch.arange(6), torch.empty(6, 0))
    assert log == [("classifier", [0, 1, 2]), ("discoverer", [3, 4, 5])]


def test_content_that_was_read_ahead_goes_to_the_turn_it_belongs_to():
    toy, seen = features(classes=2), []
    inputs = toy.train.inputs

    def step(name):
        network = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

        def loss(index, rand):
            seen.append((name, inputs.staged(index)))
            return network(torch.ones(1, 1)).sum()

        return TrainStep(network, optimizer, loss, torch.device("cpu"), task=toy.train)

    content = torch.arange(12.0).view(6, 2)
    turns = module.Turns(step("classifier"), step("discoverer"))
    assert turns.task is toy.train
    turns(torch.arange(6), torch.empty(6, 0), content)
    assert [name for name, _ in seen] == ["classifier", "discoverer"]
    assert torch.equal(torch.cat([part for _, part in seen]), content)


def test_the_discoverer_finds_the_planted_group():
    toy = features(classes=2)
    method, _ = fit(Debian, toy, **DEBIAN)
    x = toy.train.batch(torch.arange(len(toy.train)))
    y = toy.train.targets
    with torch.no_grad():
        assigned = method.discoverer(x).sigmoid().gather(1, y[:, None]).squeeze(1)
    for c in (0, 1):
        conflicting, aligned = (assigned[(y == c) & s] for s in (toy.conflicting, ~toy.conflicting))
        assert abs(conflicting.mean() - aligned.mean()) > 0.3
        apart = (conflicting[:, None] > aligned[None]).double().mean().item()
        assert max(apart, 1 - apart) > 0.95


def test_the_discoverer_starts_undecided_but_not_at_zero():
    network = discoverer_network(features().train)
    again = discoverer_network(features().train)
    assert network.head.weight.abs().max() > 0
    assert torch.equal(network.head.weight, again.head.weight)


def test_the_weights_of_discovered_samples_reach_the_classifier(monkeypatch):
    """With all weights equal the classifier comes out differently."""
    toy = features()
    _, network = fit(Debian, toy, **DEBIAN)
    monkeypatch.setattr(
        module, "conflict_weights", lambda confidence, *_: torch.ones_like(confidence)
    )
    _, unweighted = fit(Debian, toy, **DEBIAN)
    assert not torch.equal(network.head.weight, unweighted.head.weight)
