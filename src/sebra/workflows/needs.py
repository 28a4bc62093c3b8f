"""What a debiasing method needs beyond the task: whether the data has it, and handing it over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sebra.debiasing.method import Guide, Help, Method
from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.measuring.groups import group_numbers
from sebra.measuring.ranks import known_attributes
from sebra.ranking.ranking import CHANCES, Ranking
from sebra.samples.table import Samples
from sebra.workflows.prepared import Prepared
from sebra.workflows.validation import Parts


def check_needs(method: Method[Any], samples: Samples, rank_method: str | None) -> None:
    """Says before any training what a method lacks."""
    needs = method.needs
    if rank_method is not None and "ranking" not in needs:
        raise UsageError(f"--rank-method: {method.name} uses no ranking")
    if "groups" in needs and not samples.attributes:
        raise UsageError(
            f"--method {method.name}: needs attribute columns in {samples.source}, which has none; "
            "add them to the manifest or choose a method without supervision"
        )
    if needs & {"heldout", "heldout_groups"}:
        if len(samples.rows("val")) == 0:
            raise UsageError(f"--method {method.name}: needs a val split in {samples.source}")
        if "heldout_groups" in needs and not samples.attributes:
            raise UsageError(
                f"--method {method.name}: needs attribute columns on the val split of "
                f"{samples.source}; --set on=patterns works without them"
            )
    known = known_attributes(samples)
    if "groups" in needs and not known[samples.rows("train")].any():
        raise UsageError(
            f"--method {method.name}: no training sample of {samples.source} has its attributes"
        )
    if samples.attributes and "heldout_groups" in needs:
        if not known[samples.rows("val")].any():
            raise UsageError(
                f"--method {method.name}: no val sample of {samples.source} has its "
                "attributes; --set on=patterns works without them"
            )
        groups = group_numbers(samples)
        train, val = (groups[rows[known[rows]]] for rows in map(samples.rows, ("train", "val")))
        empty = np.setdiff1d(np.unique(train), np.unique(val))
        if len(empty):
            raise UsageError(
                f"--method {method.name}: {len(empty)} of the training groups are empty in the "
                f"val split of {samples.source}; add samples of them or choose another method"
            )


def annotated(samples: Samples, parts: Parts, session: Session) -> Parts:
    """The training samples whose groups are known: one without a value is in no group."""
    known = known_attributes(samples)[samples.rows("train")][parts.train]
    if not known.all():
        session.note(f"{int((~known).sum())} training samples without attributes are left out")
    return replace(parts, train=parts.train[known])


def _known_in_val(samples: Samples, session: Session) -> npt.NDArray[np.int64]:
    """Positions in the val split of the samples whose groups are known."""
    known = known_attributes(samples)[samples.rows("val")]
    if not known.all():
        lacking = int((~known).sum())
        session.note(f"{lacking} val samples without attributes do not train the last layer")
    return np.flatnonzero(known)


def help_for(
    prepared: Prepared,
    parts: Parts,
    ranking: Ranking | None,
    needs: frozenset[str],
    session: Session,
) -> Help:
    """What the method may use, cut to the samples that train."""
    device, samples = prepared.device, prepared.samples
    selector: Any = None
    guide = None
    if ranking is not None:
        guide = guide_of(Ranking(ranking.table.iloc[parts.train]), device)
    groups = heldout = heldout_groups = None
    numbers = group_numbers(samples) if samples.attributes else None
    if "groups" in needs and numbers is not None:
        groups = _tensor(_dense(numbers[samples.rows("train")][parts.train]), device)
    if needs & {"heldout", "heldout_groups"}:
        rows, known = samples.rows("val"), _known_in_val(samples, session)
        heldout = prepared.task("val").subset(_tensor(known, device))
        if numbers is not None:
            heldout_groups = _tensor(_dense(numbers[rows[known]]), device)
    return Help(selector, guide, groups, heldout, heldout_groups)


def guide_of(ranking: Ranking, device: torch.device) -> Guide:
    """A ranking of the samples that train, in their order, as a method gets it."""
    table, stages = ranking.table, ranking.stages
    chances = [name for name in CHANCES if name in table]
    return Guide(
        rank=_tensor(table["rank"].to_numpy(), device),
        bucket=_tensor(table["bucket"].to_numpy(), device),
        spuriosity=_tensor(table["spuriosity"].to_numpy(), device).float(),
        stages=_tensor(table[stages].to_numpy(), device).float() if stages else None,
        **{name: _tensor(table[name].to_numpy(), device).float() for name in chances},
    )


def _dense(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _tensor(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.array(values)).to(device)
