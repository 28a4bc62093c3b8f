"""How an audit ends: a pattern was found, none was, or it cannot be told; with the reason."""

from __future__ import annotations

from typing import Any

from sebra.ranking.controls import Controls
from sebra.ranking.noise import FEWEST_SAMPLES
from sebra.ranking.ranking import Ranking

FOUND, NOTHING, CANNOT_TELL = "found", "nothing found", "cannot tell"
SURE = 0.8  # of the trials must come out right: four of five


def verdict_of(ranking: Ranking, names_patterns: bool, controls: Controls | None) -> dict[str, Any]:
    """`state` and `reason`, for `metrics.json` and for people."""
    return dict(zip(("state", "reason"), _verdict(ranking, names_patterns, controls), strict=True))


def _verdict(ranking: Ranking, names_patterns: bool, controls: Controls | None) -> tuple[str, str]:
    if not names_patterns:
        return CANNOT_TELL, "this method orders samples and names no pattern; --method peel does"
    many = len(ranking.stages)
    said = None if controls is None else "; ".join(controls.sentences())
    if many:
        shares = [f"{(ranking.table[name] > 0.5).mean():.0%}" for name in ranking.stages]
        what = f"{many} {'pattern' if many == 1 else 'patterns'}, followed by {', '.join(shares)}"
        reason = f"{what} of the samples, which models lean on and fail without"
        if controls is None or said is None:
            return FOUND, f"{reason}; no controls"
        if sum(controls.claims) > (1 - SURE) * len(controls.claims):
            return CANNOT_TELL, f"{what} of the samples, but {said}"
        return FOUND, f"{reason}; {said}"
    if controls is None or said is None:
        few = f" ({len(ranking)} samples are too few)" if len(ranking) < FEWEST_SAMPLES else ""
        return CANNOT_TELL, f"no pattern was found, and no controls say what would have been{few}"
    if controls.found >= SURE * len(controls.areas):
        return NOTHING, f"the samples that models fail on share no property; {said}"
    return CANNOT_TELL, f"no pattern was found, but {said}"
