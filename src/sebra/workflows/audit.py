"""`sebra audit`: a ranking and its report in one go, and how a model stands to what is found."""

from __future__ import annotations

from sebra.engine.session import ProgressSink
from sebra.runs.folder import RunFolder
from sebra.samples.open import open_samples
from sebra.workflows.answers import answers_of
from sebra.workflows.leaning import leaning
from sebra.workflows.prepared import Source
from sebra.workflows.rank import RankOptions, RankRun, finish, rank
from sebra.workflows.report import report_run


def audit(
    source: Source,
    options: RankOptions,
    folder: RunFolder,
    resume: bool = False,
    progress: ProgressSink | None = None,
    predictions: str | None = None,
) -> RankRun:
    """predictions: a model to ask; a wrong file is refused before anything is ranked."""
    asked = None
    if predictions is not None:
        samples = open_samples(source.data, source.attributes)
        asked = answers_of(predictions, samples, source.device)
    run = rank(source, options, folder, resume, progress, command="audit")
    if asked is not None:
        with run.meter.phase("predictions"):
            run.metrics["model"] = leaning(asked, folder, samples, progress)
        folder.write_metrics(run.metrics)
    with run.meter.phase("report"):
        run.metrics["report"] = str(report_run(folder))
    finish(run.metrics, run.meter, folder)
    return run
