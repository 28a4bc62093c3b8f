"""`sebra rank`: DATA in, a run folder with a ranking out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sebra import __version__
from sebra.engine.session import ProgressSink, Session
from sebra.errors import UsageError
from sebra.measuring.ranks import quality_of
from sebra.plugins import EXPLAINERS, TUNERS, plugins
from sebra.ranking.controls import run_controls
from sebra.ranking.noise import NoiseEstimate, estimate_noise, too_large
from sebra.ranking.ranking import Monitor, Ranker, Ranking
from sebra.ranking.registry import ranker_class
from sebra.runs.config import Settled, named_preset, settle
from sebra.runs.folder import CONFIG, RANKING, RunFolder
from sebra.runs.meter import Meter
from sebra.samples.table import Samples
from sebra.whole import utf8
from sebra.workflows.history import history_of
from sebra.workflows.prepare import prepare, ranked_on
from sebra.workflows.prepared import Prepared, Source
from sebra.workflows.saliency import save_saliency
from sebra.workflows.verdict import verdict_of
from sebra.workflows.verdicts import carry_over, judged, write_patterns


@dataclass(frozen=True)
class RankOptions:
    """What `rank` takes besides the source."""

    method: str = "sebra"
    preset: str | None = None
    overrides: tuple[str, ...] = ()
    neurons: str | None = None
    tune_seconds: float | None = None  # search the settings for so long; None: take them as given
    verdicts: str | None = None  # on an earlier ranking, to carry over


@dataclass
class RankRun:
    """A finished ranking with everything that was measured on the way."""

    ranking: Ranking
    metrics: dict[str, Any]
    prepared: Prepared
    history: list[dict[str, Any]]
    meter: Meter


def rank(
    source: Source,
    options: RankOptions,
    folder: RunFolder | None = None,
    resume: bool = False,
    progress: ProgressSink | None = None,
    samples: Samples | None = None,
    command: str = "rank",
) -> RankRun:
    """Ranks every training sample; writes the run folder where one is given."""
    meter = Meter()
    identity = identity_of(command, source, dataclasses.asdict(options))
    session = open_session(folder, identity, resume, progress)
    with session.stoppable():
        with session.checking(), meter.phase("open"):
            before = None if options.verdicts is None else judged(options.verdicts, None)
            preset = named_preset(options.preset)
            prepared = prepare(source, session, meter, samples, preset)
            mode = None if source.mode == "auto" else source.mode
            prepared = ranked_on(prepared, options.method, preset, meter, mode)
            ranker, settled = ranker_for(options, prepared.mode)
            ranker.take_marks(options.neurons, prepared.readable("train"))
        ranker, settled, trials = tuned(options, prepared, ranker, settled, session, meter)
        run = rank_prepared(prepared, ranker, session, meter)
        judge(run, ranker, session, meter)
    if trials:
        run.metrics["tuning"] = trials
    if folder is not None:
        with meter.phase("write"):
            ranker.leave(folder.path, run.prepared.split("train")[0], session)
            state = run.metrics["verdict"]["state"]
            find = plugins(EXPLAINERS)["places"].load()
            maps = find(run.ranking, prepared, meter, state, ranker.names_patterns)
            save_saliency(folder.path, maps)
            run.metrics["notes"] = list(session.notes)
            write_rank_run(folder, run, {**identity, **settled.tables()})
            if before is not None:
                run.metrics["verdicts"] = carry_over(before, folder)
                write_patterns(folder, run.ranking, run.metrics["verdicts"])
    finish(run.metrics, meter, folder)
    session.close()
    return run


def check_options(options: RankOptions) -> None:
    """Refuses wrong or contradictory options before anything is read."""
    if options.neurons is not None and not ranker_class(options.method).takes_marks:
        raise UsageError(f"--neurons: belongs to --method neurons, not {options.method}")
    if options.tune_seconds is not None:
        plugins(TUNERS)["controls"].load().space_of(options.method)
    ranker_for(options, mode="finetune")  # whichever the mode will be, the same values are valid


def ranker_for(options: RankOptions, mode: str) -> tuple[Ranker[Any], Settled[Any]]:
    """The ranker that the options name, and its settings in this mode."""
    kind = ranker_class(options.method)
    preset, method = named_preset(options.preset), options.method
    settled = settle(kind.config_class, "rank", method, mode, preset, options.overrides)
    return kind(settled.config), settled


def tuned(
    options: RankOptions,
    prepared: Prepared,
    ranker: Ranker[Any],
    settled: Settled[Any],
    session: Session,
    meter: Meter,
) -> tuple[Ranker[Any], Settled[Any], list[dict[str, Any]]]:
    """The ranker with the settings that `--tune` finds, and its trials; as it is without it."""
    if options.tune_seconds is None:
        return ranker, settled, []
    config = settled.config
    tuner = plugins(TUNERS)["controls"].load()
    space = tuner.space_of(options.method, options.overrides, config)
    with meter.phase("open"):
        task = prepared.rank_task(ranker)
    with meter.phase("tune"):
        config, trials = tuner.tune(
            task, type(ranker), config, space, session, options.tune_seconds
        )
    return type(ranker)(config), settled.tuned(config), trials


def rank_prepared(
    prepared: Prepared, ranker: Ranker[Any], session: Session, meter: Meter
) -> RankRun:
    """Ranks the training split of a prepared data set."""
    with meter.phase("open"):
        history = history_of(prepared.samples, lambda name: prepared.rank_task(ranker, name))
    ranking = ranking_of(prepared, ranker, session, meter, history)
    with meter.phase("measure"):
        figures = measure(ranking, prepared.samples)
    metrics = {
        "version": __version__,
        "data": prepared.source.data,
        "samples": len(ranking),
        "ranking": figures,
        "notes": list(session.notes),
    }
    return RankRun(ranking, metrics, prepared, history.rows, meter)


def ranking_of(
    prepared: Prepared, ranker: Ranker[Any], session: Session, meter: Meter, monitor: Monitor
) -> Ranking:
    """The ranking of the training split, with who is likely mislabelled; every command's own."""
    with meter.phase("open"):
        task = prepared.rank_task(ranker)
    with meter.phase("rank"), session.working("ranking"):
        result = ranker.rank(task, session, monitor)
    with meter.phase("measure"):
        part, inputs = prepared.split("train")
        ranking = Ranking.from_result(result, part.ids, part.labels, part.classes)
        ranking.data = prepared.source.data
        known = result.noise if task.inputs is inputs else None  # patch features tell it worse
        add_noise(ranking, prepared, session, meter, known)
    return ranking


def add_noise(
    ranking: Ranking,
    prepared: Prepared,
    session: Session,
    meter: Meter,
    known: NoiseEstimate | None = None,
) -> None:
    """Estimates who is mislabelled and writes it into the ranking's table.

    `ranking` is in the order of the training split, as `Ranking.from_result` leaves it. known: the
    estimate of that split, where the ranker has made it already.
    """
    task = prepared.task("train")
    if too_large(task):
        session.note(
            f"wrong labels are not estimated (no noise column): {len(task)} samples x "
            f"{task.classes} classes are too many"
        )
        return
    part, _ = prepared.split("train")
    with meter.phase("noise"), session.working("looking for wrong labels"):
        found = estimate_noise(task) if known is None else known
    names = np.asarray(part.classes, dtype=object)
    ranking.table = ranking.table.assign(
        noise=found.noise,
        suggested=names[found.suggested],
        why=np.asarray(found.reasons(part.labels, part.classes), dtype=object),
    )
    ranking.details["suspects"] = int(found.flagged.sum())
    ranking.logits = found.logits


def judge(run: RankRun, ranker: Ranker[Any], session: Session, meter: Meter) -> None:
    """Tries the ranker on copies of the data, half as long as the run took so far; then a verdict,
    and words for what was found.

    Controls run over features alone, and not for a ranker that goes by a person's marks.
    """
    controls = None
    if run.prepared.mode == "features" and not ranker.takes_marks:
        task = run.prepared.rank_task(ranker)
        with meter.phase("controls"), session.working("trying it on copies of the data"):
            again = partial(type(ranker), ranker.config)
            controls = run_controls(task, again, meter.so_far() / 2, ranker.names_patterns)
    elif run.prepared.mode != "features":
        session.note(
            "the ranking was not tried on copies of the data (no controls, no trust): that needs "
            "frozen features (--mode features)"
        )
    details = run.ranking.details
    if controls is not None:
        details.update(trust=controls.trust, controls=controls.to_dict())
        for said in controls.sentences():
            session.note(f"controls: {said}")
    run.metrics["verdict"] = verdict_of(run.ranking, ranker.names_patterns, controls)
    run.metrics["ranking"] |= {k: details[k] for k in ("trust", "controls") if k in details}
    run.metrics["notes"] = list(session.notes)
    with meter.phase("words"), session.working("looking for words"):
        plugins(EXPLAINERS)["words"].load()(run.ranking, run.prepared)


def measure(ranking: Ranking, samples: Samples) -> dict[str, Any]:
    """What is known about a ranking; with attributes also how good it is."""
    table = ranking.table
    sizes = np.bincount(table["bucket"].to_numpy())
    out: dict[str, Any] = {
        "buckets": ranking.buckets,
        "largest_bucket_share": float(sizes.max() / len(table)),
        **ranking.details,
    }
    stages = {name: table[name].to_numpy() for name in ranking.stages}
    quality = quality_of(samples, samples.rows("train"), table["rank"].to_numpy(), stages or None)
    out.update(quality or {})
    return out


def identity_of(command: str, source: Source, options: dict[str, Any]) -> dict[str, Any]:
    """What a run is: the same identity gives the same result."""
    out: dict[str, Any] = {"command": command, "version": __version__}
    out.update(source.to_dict())
    for key, value in options.items():
        if value is not None and value != ():
            out[key] = list(value) if isinstance(value, tuple) else value
    return {k: list(v) if isinstance(v, tuple) else v for k, v in out.items()}


def open_session(
    folder: RunFolder | None, identity: dict[str, Any], resume: bool, progress: ProgressSink | None
) -> Session:
    """The session of a command; from here on its folder is that of an unfinished run."""
    if folder is None:
        return Session(None, identity, progress=progress)
    if not resume and folder.has(CONFIG):
        held = folder.read_config().get("data")
        if held != utf8(identity["data"]):
            raise UsageError(
                f"--out: {folder.path} holds a run of {held}; choose another folder, or remove it"
            )
    folder.checkpoint.mkdir(parents=True, exist_ok=True)
    return Session(folder.checkpoint, identity, resume=resume, progress=progress)


def write_rank_run(folder: RunFolder, run: RankRun, config: dict[str, Any]) -> None:
    folder.write_config(config)
    run.ranking.save(folder.path / RANKING)
    write_patterns(folder, run.ranking, {})
    if run.history:
        folder.write_history(run.history)
    folder.write_quarantine(run.prepared.faults)
    run.ranking.folder = folder.path
    run.metrics["run"] = str(folder.path)


def finish(metrics: dict[str, Any], meter: Meter, folder: RunFolder | None) -> None:
    """Adds the seconds of every phase, and writes the figures where there is a folder."""
    metrics.update(meter.result())
    if folder is not None:
        folder.write_metrics(metrics)
