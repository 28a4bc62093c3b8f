"""The façade: `sebra.rank`, `sebra.debias`, `sebra.evaluate`, `sebra.audit`, `sebra.report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sebra.errors import UsageError
from sebra.samples.objects import Columns, as_data

if TYPE_CHECKING:
    from sebra.debiasing.model import Model
    from sebra.measuring.groups import Scores
    from sebra.ranking.ranking import Ranking


def rank(
    data: Any,
    method: str = "sebra",
    *,
    out: str | None = None,
    columns: Columns | None = None,
    preset: str | None = None,
    neurons: str | None = None,
    settings: dict[str, Any] | None = None,
    **source: Any,
) -> Ranking:
    """Ranks every training sample of DATA; `.table` is a pandas DataFrame.

    data: a folder, a file or a layout by name, a pandas frame, arrays (X, y), a list of (path,
    label), a torch or Hugging Face data set, or a dict of those by split. columns: which column is
    the `label`, `text` or `path`, where it has another name, as `{"label": "species"}`. settings:
    fields of the method's configuration. source: the options of the command line (seed, device,
    mode, backbone, weights, image_size, attributes, exclude). out: also write a run folder.
    """
    from sebra.runs.folder import RunFolder
    from sebra.workflows.prepared import Source
    from sebra.workflows.rank import RankOptions
    from sebra.workflows.rank import rank as run

    folder = None if out is None else RunFolder.create(out, "rank")
    options = RankOptions(method, preset, _overrides(settings), neurons)
    found = run(Source(data=as_data(data, columns), **source), options, folder)
    ranking = found.ranking
    ranking.details = {**ranking.details, "metrics": found.metrics, "history": found.history}
    return ranking


def debias(
    data: Any,
    ranking: Ranking | str | None = None,
    method: str = "auto",
    *,
    out: str | None = None,
    columns: Columns | None = None,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    select: str = "auto",
    verdicts: str | None = None,
    **source: Any,
) -> Model:
    """Trains a model on DATA; ranks first where the method needs it and no ranking is given.

    data, columns: as for `rank`. verdicts: a file of `sebra review`; only patterns that were called
    a shortcut there are acted on.
    """
    from sebra.ranking.ranking import Ranking
    from sebra.runs.folder import RunFolder
    from sebra.workflows.debias import DebiasOptions
    from sebra.workflows.debias import debias as run
    from sebra.workflows.prepared import Source

    if isinstance(ranking, (str, Path)):
        ranking = Ranking.load(ranking)
    folder = None if out is None else RunFolder.create(out, "debias")
    options = DebiasOptions(method, preset, _overrides(settings), select=select, verdicts=verdicts)
    found = run(Source(data=as_data(data, columns), **source), options, folder, ranking=ranking)
    found.model.details["metrics"] = found.metrics
    return found.model


def evaluate(
    model: Model | str, data: Any, min_group: int = 20, *, columns: Columns | None = None
) -> Scores:
    """Scores a model (or a model run) on DATA's test split, else on its val split."""
    from sebra.debiasing.model import Model
    from sebra.samples.open import open_samples
    from sebra.workflows.evaluate import evaluate_model

    loaded = Model.load(model) if isinstance(model, (str, Path)) else model
    return evaluate_model(loaded, open_samples(as_data(data, columns)), min_group)[1]


def report(ranking: Ranking, path: str | Path, data: Any = None) -> Path:
    """Writes the HTML report of a ranking to `path`."""
    import pandas as pd

    from sebra import __version__
    from sebra.samples.open import open_samples
    from sebra.showing.report import ReportInput, write_report

    source = ranking.data if data is None else as_data(data)
    if not source:
        raise UsageError("report: the ranking does not know its data; pass data=…")
    samples = open_samples(source)
    history = ranking.details.get("history")
    run = ReportInput(
        title=f"Sebra: {samples.name}",
        table=ranking.table,
        samples=samples,
        data=source,
        history=pd.DataFrame(history) if history else None,
        metrics=ranking.details.get("metrics", {}),
        version=__version__,
    )
    return write_report(run, Path(path))


def audit(
    data: Any, path: str | Path = "report.html", method: str = "peel", **options: Any
) -> Ranking:
    """Ranks DATA by the method that names patterns and writes the report; options of `rank`."""
    ranking = rank(data, method, **options)
    report(ranking, path)
    return ranking


def _overrides(settings: dict[str, Any] | None) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in (settings or {}).items())
