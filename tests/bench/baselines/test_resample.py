from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from debiasing.toys import SETTINGS, accuracy, features, fit
from sebra.debiasing.erm import Erm
from sebra.debiasing.method import Guide
from sebra.errors import UsageError
from sebra_bench.baselines.grouping import bucket_groups, even_weights, within_class
from sebra_bench.baselines.resample import Resample


def guide(bucket):
    bucket = torch.tensor(bucket)
    return Guide(torch.zeros_like(bucket), bucket, torch.zeros(len(bucket)))


def test_classes_have_equal_mass_and_buckets_within_them():
    targets = torch.tensor([0, 0, 0, 0, 1, 1])
    groups = bucket_groups(guide([0, 0, 0, 5, 1, 1]), targets)
    weights = even_weights(groups, targets)
    share = weights / weights.sum()
    assert share.tolist() == pytest.approx([1 / 12] * 3 + [1 / 4] + [1 / 4] * 2)


def test_buckets_merge_in_order_into_so_many_parts():
    targets = torch.zeros(7, dtype=torch.long)
    groups = bucket_groups(guide([0, 0, 2, 3, 3, 7, 9]), targets, parts=2)
    assert groups.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert bucket_groups(guide([0, 0, 2, 3, 3, 7, 9]), targets, parts=20).max() == 4


def test_groups_never_span_classes():
    targets, parts = torch.tensor([0, 1, 0, 1]), torch.tensor([-1, -1, 4, -1])
    assert within_class(parts, targets).tolist() == [0, 2, 1, 2]


@pytest.mark.parametrize("settings", [{}, {"by": "stages"}])
def test_better_than_plain_training_where_the_cue_misleads(settings):
    toy = features(share=0.04, noise=1.5)
    held = toy.held.subset(toy.held_conflicting)
    base = {**SETTINGS["features"], "epochs": 4}
    even = accuracy(fit(Resample, toy, **base, **settings)[1], held)
    assert even > accuracy(fit(Erm, toy, **base)[1], held) + 0.1


def test_stage_columns_are_asked_for():
    toy = features()
    method = Resample(Resample.config_class(by="stages"))
    help = toy.help(method.needs)
    bare = replace(help, guide=replace(help.guide, stages=None))
    with pytest.raises(UsageError, match="stage columns"):
        method.chances(toy.train, bare)
