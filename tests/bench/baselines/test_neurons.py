"""Ranking by neurons: importance against loops, marks obeyed, a planted bias found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranking.toys import images, planted
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.measuring.ranks import by_class, somers_d
from sebra.ranking.order import ranks_within_classes
from sebra.ranking.ranking import Blind
from sebra_bench.baselines.activations import Profile
from sebra_bench.baselines.neuron_marks import Marks
from sebra_bench.baselines.neurons import NeuronsConfig, NeuronsRanker

SETTINGS = {"epochs": 5, "lr": 0.5, "weight_decay": 0.0, "batch": 32, "flip": False, "top": 2}


def ranked(task, marks=None, session=None, **changes):
    ranker = NeuronsRanker(NeuronsConfig(**{**SETTINGS, **changes}))
    ranker.marks = marks
    return ranker, ranker.rank(task, session or Session(), Blind())


def quality(task, result, conflicting):
    labels = task.targets.numpy()
    rank = ranks_within_classes(result.bucket, result.score, labels)
    return by_class(somers_d, rank, conflicting.astype(int), labels)


@pytest.mark.parametrize("task", [planted(n=90)[0], images(n=26)], ids=["features", "images"])
def test_importance_is_mean_activation_times_weight(task):
    network = task.network()
    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    found = Profile(network, task, marked=(1, 5, 7))
    network.eval()
    with torch.no_grad():
        z = network.embed(task.inputs.batch(task.rows)).double().numpy()
        predicted = network(task.inputs.batch(task.rows)).argmax(1).numpy()
    y, weight = task.targets.numpy(), network.head.weight.detach().numpy()
    for c in range(2):
        right = [i for i in range(len(task)) if y[i] == c and predicted[i] == c]
        used = right or [i for i in range(len(task)) if y[i] == c]
        expected = [
            np.mean([z[i, j] - z[:, j].min() for i in used]) * weight[c, j]
            for j in range(z.shape[1])
        ]
        np.testing.assert_allclose(found.importance[c].numpy(), expected, rtol=1e-4, atol=1e-5)
        assert found.top(c, 3) == np.argsort(expected)[::-1][:3].tolist()
        members = z[y == c]
        np.testing.assert_allclose(found.mean[c].numpy(), members.mean(0), atol=1e-5)
        np.testing.assert_allclose(found.std[c].numpy(), members.std(0), atol=1e-4)
    assert found.marked_counts.flatten().tolist() == [0, 3]
    assert found.excited(0, 2) == []


def test_the_scores_are_the_mean_standardised_activations_of_the_marked_neurons():
    task, _ = planted(n=90)
    _, result = ranked(task, Marks("m", {0: (0, 3), 1: (2,)}))
    x = task.inputs.batch(task.rows).double().numpy()
    for c, neurons in ((0, [0, 3]), (1, [2])):
        part = x[task.targets.numpy() == c]
        standard = (part - part.mean(0)) / part.std(0)
        expected = standard[:, neurons].mean(1)
        np.testing.assert_allclose(result.score[task.targets.numpy() == c], expected, atol=1e-4)


def test_the_most_important_neurons_find_a_planted_bias():
    task, conflicting = planted()
    ranker, result = ranked(task, top=1)
    # Class 1 goes with a high cue; class 0 with a low one, which no single neuron says by firing.
    assert ranker.neurons[1][0].neuron == 0
    assert quality(task, result, conflicting)[1] > 0.95


def test_a_marked_neuron_decides_and_an_unmarked_one_does_not():
    task, conflicting = planted()
    cue = quality(task, ranked(task, Marks("m", {1: (0,)}))[1], conflicting)
    other = quality(task, ranked(task, Marks("m", {1: (4,)}))[1], conflicting)
    assert cue[1] > 0.95
    assert abs(other[1]) < 0.3


def test_buckets_are_equal_parts_of_each_class_by_falling_score():
    task, _ = planted(n=200)
    _, result = ranked(task)
    for c in range(2):
        members = task.targets.numpy() == c
        assert np.bincount(result.bucket[members]).tolist() == [10] * 10
        for b in range(9):
            higher = result.score[members & (result.bucket == b)].min()
            assert higher >= result.score[members & (result.bucket == b + 1)].max()


def test_a_class_without_marks_stays_in_one_bucket_and_is_named():
    task, _ = planted()
    session = Session()
    _, result = ranked(task, Marks("m", {1: (0,)}), session)
    assert set(result.bucket[task.targets.numpy() == 0]) == {0}
    assert len(set(result.bucket[task.targets.numpy() == 1])) == 10
    assert "1 of 2 classes" in session.notes[0]


def test_marked_samples_lead_to_the_neurons_they_excite():
    task, conflicting = planted()
    aligned = np.flatnonzero((task.targets.numpy() == 1) & ~conflicting)
    ranker, result = ranked(task, Marks("m.csv", samples=tuple(aligned.tolist())), top=1)
    assert [n.neuron for n in ranker.neurons[1] if n.spurious] == [0]
    assert quality(task, result, conflicting)[1] > 0.95


def test_the_list_names_the_samples_that_excite_a_neuron_most():
    task, _ = planted(n=60)
    ranker, _ = ranked(task, Marks("m", {0: (5,)}))
    x, y = task.inputs.batch(task.rows).numpy(), task.targets.numpy()
    for c in range(2):
        for entry in ranker.neurons[c]:
            members = np.flatnonzero(y == c)
            best = members[np.argsort(-x[members, entry.neuron])][:8]
            assert entry.examples == tuple(best.tolist())
            assert entry.spurious == (c == 0 and entry.neuron == 5)
    assert len(ranker.neurons[0]) >= 2


def test_a_neuron_that_is_not_there_is_refused_before_training():
    task, _ = planted(n=40)
    with pytest.raises(UsageError, match=r"marks\.json names neuron 6 .* 0 to 5"):
        ranked(task, Marks("marks.json", {1: (6,)}), epochs=10**5)


def test_marks_of_another_network_are_noticed():
    task, _ = planted(n=60)
    ranker, _ = ranked(task)
    first = ranker.neurons[1][0]
    told = []
    for importance in (first.importance, first.importance * 3):
        session = Session()
        marks = Marks(
            "m", {0: (0,), 1: (first.neuron,)}, importance={(1, first.neuron): importance}
        )
        ranked(task, marks, session)
        told.append(" ".join(session.notes))
    assert told[0] == ""
    assert "another network" in told[1]


def test_images_are_ranked_and_an_interrupted_training_goes_on(tmp_path):
    class Dying(Blind):
        def round(self, number, network, loss, learned):
            if number == 2:
                raise RuntimeError("power cut")

    settings = {"optimizer": "adam", "lr": 3e-3, "batch": 8, "crop": 0.8, "epochs": 4}
    _, expected = ranked(images(), **settings)
    assert len(set(expected.bucket)) == 10
    ranker = NeuronsRanker(NeuronsConfig(**{**SETTINGS, **settings}))
    with pytest.raises(RuntimeError, match="power cut"):
        ranker.rank(images(), Session(tmp_path, every_seconds=0), Dying())
    _, found = ranked(images(), session=Session(tmp_path, resume=True), **settings)
    np.testing.assert_array_equal(found.score, expected.score)


@pytest.mark.parametrize("name", ["epochs", "lr", "crop", "top"])
def test_settings_without_sense_are_refused(name):
    with pytest.raises(UsageError, match=name):
        NeuronsConfig(**{name: 0})
