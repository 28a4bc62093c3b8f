"""`sebra audit`: a ranking and its report in one go, and how a model stands to what is found."""

from __future__ import annotations

from sebra.engine.session import ProgressSink
from sebra.plugins import CHECKS, MODELS, plugins
from sebra.runs.folder import RunFolder
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
        lean = plugins(MODELS)["leaning"].load()
        asked = lean(predictions, source.data, source.attributes, source.device)
    run = rank(source, options, folder, resume, progress, command="audit")
    if asked is not None:
        with run.meter.phase("predictions"):
            run.metrics["model"] = asked(folder, progress)
    with run.meter.phase("checks"), run.prepared.session.working("ordinary checks"):
        found = [check.load()(run.prepared.samples) for check in plugins(CHECKS).values()]
        run.metrics["checks"] = [finding for findings in found for finding in findings]
    folder.write_metrics(run.metrics)
    with run.meter.phase("report"), run.prepared.session.working("writing the report"):
        run.metrics["report"] = str(report_run(folder))
    finish(run.metrics, run.meter, folder)
    return run
