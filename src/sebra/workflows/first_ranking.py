"""The ranking that a method is given: made first, or taken from an earlier run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sebra.engine.session import Session
from sebra.ranking.patterns import PatternModel
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import CONFIG, RunFolder
from sebra.runs.meter import Meter
from sebra.workflows.history import History
from sebra.workflows.prepared import Prepared
from sebra.workflows.rank import RankOptions, ranker_for, ranking_of

_PATTERNS = "patterns."
Tables = dict[str, dict[str, Any]]  # settings and where they are from, for `config.toml`


def rank_first(
    on: Prepared, chosen: RankOptions, session: Session, meter: Meter
) -> tuple[Ranking, Tables]:
    """The ranking that `sebra rank` would make, and its settings."""
    import pandas as pd

    part, _ = on.split("train")
    ranker, settled = ranker_for(chosen, on.mode)
    session.note(f"ranking first (method {chosen.method}); --ranking RUN uses an earlier one")

    def compute() -> dict[str, torch.Tensor]:
        history = History(on.samples, None, None)
        ranking = ranking_of(on, ranker, session, meter, history)
        figures = ranking.table.select_dtypes("number")
        out = {str(c): torch.from_numpy(figures[c].to_numpy().copy()) for c in figures}
        model = {} if ranking.patterns is None else vars(ranking.patterns)
        return {**out, **{f"{_PATTERNS}{k}": v for k, v in model.items() if v is not None}}

    found = dict(session.once("ranking", compute))
    model = {k: found.pop(k) for k in list(found) if k.startswith(_PATTERNS)}
    label = np.asarray(part.classes, dtype=object)[part.labels]
    table = pd.DataFrame({"id": part.ids, "label": label})
    tables = settled.tables("rank")
    tables["rank"] = {"method": chosen.method, **tables["rank"]}
    ranking = Ranking(table.assign(**{k: v.numpy() for k, v in found.items()}))
    if model:
        ranking.patterns = PatternModel(**{k.removeprefix(_PATTERNS): v for k, v in model.items()})
    return ranking, tables


def ranked_by_run(ranking: Ranking | None) -> Tables:
    """What the run of a ranking that was given says of its settings."""
    run = None if ranking is None or ranking.folder is None else RunFolder(ranking.folder)
    if run is None or not run.has(CONFIG):
        return {}
    found = run.read_config()
    named = {"method": found.get("method"), **found.get("settings", {})}
    return {"rank": named, "rank_from": dict(found.get("settings_from", {}))}
