"""Contrastive partners by rank: positives are less spurious, negatives equally spurious.

Everything is a pair of ranges per sample over one sorted order, so that drawing partners for a
batch is a few index operations on the device, whatever the size of buckets and classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ranges:
    """For every sample a range [start, start + count) of `order`, and its own place in it.

    `own` is the sample's position inside the range, or `count` where it is not in it. `mass`: the
    weight of everyone before each place of `order`, and of all (n + 1 sums); None draws alike.
    """

    order: Tensor
    start: Tensor
    count: Tensor
    own: Tensor
    mass: Tensor | None = None

    def weighted(self, weights: Tensor) -> Ranges:
        """The same ranges, from which partners are drawn in proportion to positive weights."""
        sums = weights.double()[self.order].cumsum(0)
        return replace(self, mass=torch.cat([sums.new_zeros(1), sums]))

    def draw(self, index: Tensor, rand: Tensor) -> Tensor:
        """One partner per column of `rand` (n x m, uniform): never the sample itself.

        A sample whose range holds nobody else gets a member of the range all the same; that can
        only happen in a class with a single sample.
        """
        if self.mass is not None:
            return self._by_weight(index, rand, self.mass)
        inside = self.own[index] < self.count[index]
        others = self.count[index] - inside.long()
        pick = (rand * others[:, None]).long().clamp_max((others - 1).clamp_min(0)[:, None])
        pick = pick + (inside[:, None] & (pick >= self.own[index][:, None]) & (others > 0)[:, None])
        return self.order[self.start[index][:, None] + pick]

    def _by_weight(self, index: Tensor, rand: Tensor, mass: Tensor) -> Tensor:
        start, count, own = self.start[index], self.count[index], self.own[index]
        place = start + torch.minimum(own, count - 1)  # of the sample, where it is inside
        skipped = (own < count) & (count > 1)
        gone = torch.where(skipped, mass[place + 1] - mass[place], 0.0)[:, None]
        low, high = mass[start][:, None], mass[start + count][:, None]
        at = low + rand * (high - low - gone)
        at = at + torch.where(at >= mass[place][:, None], gone, 0.0)
        found = torch.searchsorted(mass, at, right=True) - 1
        # Rounding may end on a neighbour: back inside the range, and off the sample itself.
        found = torch.minimum(found.clamp_min(0), (start + count - 1)[:, None])
        found = torch.maximum(found, start[:, None])
        hit = skipped[:, None] & (found == place[:, None])
        other = torch.where(place == start, place + 1, place - 1)[:, None]
        return self.order[torch.where(hit, other, found)]


def rank_partners(
    labels: Tensor, bucket: Tensor, gap: int = 1, exact: bool = False
) -> tuple[Ranges, Ranges]:
    """Ranges of positives and negatives for every sample (paper, section 3.3).

    Positives: same class, at least `gap` buckets later; where there are none, the class's last
    bucket, or the one before it for a sample that is alone in the last. Negatives: same class and
    bucket; a bucket of one is joined with its neighbour. Buckets are counted as they are used,
    class by class. exact: positives of one bucket alone, as in the published runs: the anchor's
    number plus `gap`, or the next number that the class has.
    """
    device = labels.device
    labels, bucket = labels.cpu(), bucket.cpu()
    n = len(labels)
    order = torch.argsort(bucket, stable=True)
    order = order[torch.argsort(labels[order], stable=True)]
    position = torch.empty_like(order)
    position[order] = torch.arange(n)
    key = labels[order] * (int(bucket.max()) - int(bucket.min()) + 1) + bucket[order] - bucket.min()
    _, run, sizes = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)[:-1]])
    run_class = labels[order][starts]
    first, last = _class_runs(run_class)
    here = run[position]  # run of each sample

    ends = starts + sizes
    later = torch.minimum(here + gap, last[here])
    until = last[here]
    if exact:
        span = gap + int(bucket.max()) - int(bucket.min()) + 1  # no number reaches the next class
        number = labels * span + bucket
        of_run = number[order][starts]
        later = torch.minimum(torch.searchsorted(of_run, number + gap), last[here])
        until = later
    pos_start = starts[later]
    pos_count = ends[until] - pos_start
    joined_start, joined_end = _join_singles(starts, ends, first, last)
    neg_start, neg_count = joined_start[here], joined_end[here] - joined_start[here]
    alone = (pos_count == 1) & (pos_start == position)  # the only member of the last bucket
    pos_start = torch.where(alone, neg_start, pos_start)
    pos_count = torch.where(alone, neg_count, pos_count)

    def ranges(start: Tensor, count: Tensor) -> Ranges:
        offset = position - start
        own = torch.where((offset >= 0) & (offset < count), offset, count)
        return Ranges(*(t.to(device) for t in (order, start, count, own)))

    return ranges(pos_start, pos_count), ranges(neg_start, neg_count)


def _class_runs(run_class: Tensor) -> tuple[Tensor, Tensor]:
    """First and last run of each run's class."""
    _, of_class, counts = torch.unique_consecutive(
        run_class, return_inverse=True, return_counts=True
    )
    end = counts.cumsum(0)
    return (end - counts)[of_class], (end - 1)[of_class]


def _join_singles(
    starts: Tensor, ends: Tensor, first: Tensor, last: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds of each run, with runs of one sample widened to the neighbour in the same class."""
    index = torch.arange(len(starts))
    single = ends - starts == 1
    before = torch.maximum(index - 1, first)
    after = torch.minimum(index + 1, last)
    use_before = single & (index > first)
    use_after = single & (index == first) & (index < last)
    return (
        torch.where(use_before, starts[before], starts),
        torch.where(use_after, ends[after], ends),
    )
