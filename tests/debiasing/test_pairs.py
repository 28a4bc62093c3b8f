"""Partners by rank: who may be drawn, and that nobody is its own negative."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sebra.debiasing.pairs import Ranges, rank_partners


def members(ranges: Ranges, i: int) -> set[int]:
    """Everyone sample `i` can draw, found by trying a fine grid of random numbers."""
    rand = torch.linspace(0, 1, 401)[:-1][None]
    return set(ranges.draw(torch.tensor([i]), rand).flatten().tolist())


def naive(labels: list[int], buckets: list[int], gap: int) -> list[tuple[set[int], set[int]]]:
    """Positives and negatives of every sample by loops over the definitions."""
    out = []
    for i, (label, bucket) in enumerate(zip(labels, buckets, strict=True)):
        mine = [j for j in range(len(labels)) if labels[j] == label]
        used = sorted({buckets[j] for j in mine})
        here = used.index(bucket)
        first = used[min(here + gap, len(used) - 1)]
        positives = {j for j in mine if buckets[j] >= first} - {i}
        joined = {bucket}
        if sum(buckets[j] == bucket for j in mine) == 1 and len(used) > 1:
            joined.add(used[here - 1] if here > 0 else used[1])
        negatives = {j for j in mine if buckets[j] in joined} - {i}
        out.append((positives or negatives or {i}, negatives or {i}))
    return out


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=2, max_size=14),
    st.integers(1, 4),
)
def test_partners_are_those_of_the_definition(samples: list[tuple[int, int]], gap: int) -> None:
    labels, buckets = [s[0] for s in samples], [s[1] for s in samples]
    positives, negatives = rank_partners(torch.tensor(labels), torch.tensor(buckets), gap)
    weights = 1 + torch.arange(len(labels)) % 3
    for i, (wanted_positives, wanted_negatives) in enumerate(naive(labels, buckets, gap)):
        for ranges, wanted in ((positives, wanted_positives), (negatives, wanted_negatives)):
            assert members(ranges, i) == wanted
            assert members(ranges.weighted(weights), i) == wanted


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=2, max_size=14),
    st.integers(1, 4),
)
def test_exact_positives_are_of_the_bucket_at_the_gap_or_the_next_one_there_is(
    samples: list[tuple[int, int]], gap: int
) -> None:
    labels, buckets = [s[0] for s in samples], [s[1] for s in samples]
    positives, negatives = rank_partners(torch.tensor(labels), torch.tensor(buckets), gap, True)
    as_before = rank_partners(torch.tensor(labels), torch.tensor(buckets), gap)[1]
    for i, (label, bucket) in enumerate(samples):
        mine = [j for j in range(len(labels)) if labels[j] == label]
        used = sorted({buckets[j] for j in mine})
        at = next((b for b in used if b >= bucket + gap), used[-1])
        wanted = {j for j in mine if buckets[j] == at} - {i}
        assert members(positives, i) == (wanted or members(negatives, i))
        assert members(negatives, i) == members(as_before, i)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1, 1), (5,), (1, 7), (3, 3, 3)])
def test_nobody_is_its_own_partner_in_classes_of_two_or_more(sizes: tuple[int, ...]) -> None:
    buckets = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    labels = torch.zeros_like(buckets)
    positives, negatives = rank_partners(labels, buckets)
    for i in range(len(labels)):
        assert i not in members(negatives, i)
        assert i not in members(positives, i)


def test_draws_are_uniform_over_the_partners() -> None:
    labels, buckets = torch.zeros(9, dtype=torch.long), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    positives, _ = rank_partners(labels, buckets)
    rand = torch.rand(1, 50_000, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(positives.draw(torch.tensor([0]), rand).flatten(), minlength=9)
    assert counts[:4].sum() == 0
    assert torch.allclose(counts[4:] / 50_000, torch.full((5,), 0.2), atol=0.01)


@pytest.mark.parametrize("anchor", [0, 4, 6])
def test_draws_are_in_proportion_to_the_weights_without_the_anchor(anchor: int) -> None:
    labels, buckets = torch.zeros(9, dtype=torch.long), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    weights = torch.tensor([5.0, 5, 5, 5, 1, 2, 3, 4, 1e-6])
    positives = rank_partners(labels, buckets)[0].weighted(weights)
    rand = torch.rand(1, 50_000, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(positives.draw(torch.tensor([anchor]), rand).flatten(), minlength=9)
    expected = torch.where(buckets > buckets[anchor], weights, 0.0)
    if anchor == 6:  # in the last bucket: the others of it
        expected = torch.tensor([0.0, 0, 0, 0, 0, 0, 0, 4, 1e-6])
    assert torch.allclose(counts / 50_000, expected / expected.sum(), atol=0.01)
