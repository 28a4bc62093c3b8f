"""`sebra debias`: DATA (and a ranking) in, a model that needs no shortcut out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from sebra import __version__
from sebra.debiasing.auto import Auto
from sebra.debiasing.method import Method
from sebra.debiasing.model import Model, assemble
from sebra.debiasing.registry import method_class
from sebra.debiasing.selection import Selector
from sebra.engine import networks
from sebra.engine.networks import Network
from sebra.engine.session import ProgressSink, Session
from sebra.errors import UsageError
from sebra.measuring.groups import MIN_GROUP, score
from sebra.plugins import WARNINGS, plugins
from sebra.processes import require_one
from sebra.ranking.ranking import Ranking
from sebra.ranking.registry import ranker_class
from sebra.runs.config import Settled, for_method, for_ranker, named_preset, settle
from sebra.runs.folder import RANKING, RunFolder
from sebra.runs.meter import Meter
from sebra.samples.table import SPLITS, Samples
from sebra.values import require
from sebra.workflows.first_ranking import rank_first, ranked_by_run
from sebra.workflows.history import predicted_classes
from sebra.workflows.needs import annotated, check_needs, help_for
from sebra.workflows.prepare import prepare, ranked_on
from sebra.workflows.prepared import Prepared, Source
from sebra.workflows.rank import RankOptions, add_noise, finish, identity_of, measure, open_session
from sebra.workflows.validation import (
    Parts,
    drawn_of,
    make_selector,
    pool_of,
    split_training,
    val_is_drawn_otherwise,
)
from sebra.workflows.verdicts import carry_over, judged, shortcuts_alone


@dataclass(frozen=True)
class DebiasOptions:
    """What `debias` takes besides the source."""

    method: str = "auto"
    preset: str | None = None
    overrides: tuple[str, ...] = ()
    ranking: str | None = None
    rank_method: str | None = None
    min_group: int = MIN_GROUP
    select: str = "auto"
    verdicts: str | None = None

    def __post_init__(self) -> None:
        require("--min-group", self.min_group)


@dataclass
class DebiasRun:
    """A trained model with everything that was measured on the way."""

    model: Model
    network: Network  # what was trained; takes what the tasks of `prepared` have
    metrics: dict[str, Any]
    history: list[dict[str, Any]]
    prepared: Prepared
    ranking: Ranking | None
    settled: Settled[Any]
    ranked_by: dict[str, dict[str, Any]]  # the ranker's settings, as `config.toml` has them
    evaluate: Callable[[], dict[str, Any]]  # figures of the model; looks at the test split

    @property
    def config(self) -> Any:
        """The method's settings."""
        return self.settled.config


def debias(
    source: Source,
    options: DebiasOptions,
    folder: RunFolder | None = None,
    resume: bool = False,
    progress: ProgressSink | None = None,
    samples: Samples | None = None,
    ranking: Ranking | None = None,
) -> DebiasRun:
    """Trains a model on DATA by any method; writes the run folder where one is given."""
    meter = Meter()
    identity = identity_of("debias", source, dataclasses.asdict(options))
    session = open_session(folder, identity, resume, progress)
    with session.stoppable():
        with session.checking(), meter.phase("open"):
            if options.verdicts is not None:
                ranking, said = shortcuts_alone(options.verdicts, options.ranking)
                session.note(said)
            elif options.ranking is not None:
                ranking = Ranking.load(options.ranking)
            prepared = prepare(source, session, meter, samples, named_preset(options.preset))
            for name in SPLITS:
                if len(prepared.samples.rows(name)):
                    prepared.readable(name)
            for warn in plugins(WARNINGS).values():
                if (said := warn.load()(prepared.samples)) is not None:
                    session.note(said)
            _settle(prepared, options, ranking)
        with meter.phase("debias"):
            run = debias_prepared(prepared, options, session, meter, ranking)
    if folder is not None:
        with meter.phase("write"):
            write_debias_run(folder, run, identity)
            if options.verdicts is not None:
                carry_over(judged(options.verdicts, options.ranking), folder)
    finish(run.metrics, meter, folder)
    session.close()
    return run


def debias_prepared(
    prepared: Prepared,
    options: DebiasOptions,
    session: Session,
    meter: Meter,
    ranking: Ranking | None = None,
    test: bool = True,
    choose: Callable[..., Selector] = make_selector,
    wide: bool = True,
) -> DebiasRun:
    """Trains on a prepared data set; ranks first where the method needs it and none is given.

    test: False leaves the test split to `evaluate` of what is returned. choose: makes the selector.
    wide: False keeps the parts of frozen pictures from methods that would see them.
    """
    method, settled = _settle(prepared, options, ranking)
    config, ranked_by = settled.config, ranked_by_run(ranking)
    if ranking is not None:
        ranking = ranking.taken(prepared.split("train")[0])  # a table of its own, in this order
    on = prepared
    if "ranking" in method.needs:
        chosen = RankOptions(
            options.rank_method or method.ranker,
            named_preset(options.preset),
            for_ranker(options.overrides),
        )
        on = ranked_on(prepared, chosen.method, chosen.preset, meter)
        if ranking is None:
            ranking, ranked_by = rank_first(on, chosen, session, meter)
    if ranking is not None and config.weighs_noise and "noise" not in ranking.table:
        add_noise(ranking, prepared, session, meter)
    prepared, over_features = prepared.enlarged(), prepared.mode == "features"
    if over_features and wide and method.sees_patches:
        prepared = prepared.widened()
    holds_out = method.holds_out(over_features)
    beside_val = method.counts_costs and holds_out and val_is_drawn_otherwise(on, ranking)
    parts = split_training(prepared.samples, prepared.source.seed, holds_out, beside_val)
    if "groups" in method.needs:
        parts = annotated(prepared.samples, parts, session)
    pool = pool_of(prepared, on, parts, ranking)
    drawn = drawn_of(prepared, parts, ranking) if beside_val else None
    selector = choose(prepared, parts, pool, ranking, options.select)
    with meter.phase("debias"):
        index = torch.from_numpy(parts.train).to(prepared.device)
        task = prepared.task("train").subset(index)
        aid = help_for(prepared, parts, ranking, method.needs, session)
        network = method.fit(task, replace(aid, selector=selector, pool=pool, drawn=drawn), session)
    model = _model(prepared, network, options.method)
    judge = partial(_evaluate, prepared, parts, network, options.min_group)
    with meter.phase("evaluate"):
        evaluation = judge() if test else {}
    metrics: dict[str, Any] = {
        "version": __version__,
        "data": prepared.source.data,
        "method": options.method,
        "samples": len(prepared.samples),
        "evaluation": evaluation,
        "selection": _selection(selector),
        "notes": list(session.notes),
    }
    if isinstance(method, Auto) and method.choice is not None:
        metrics["choice"] = method.choice.to_dict()
        metrics["selection"] = method.choice.selection
        plain = method.choice.plain
        metrics["plain"] = _evaluate(prepared, parts, plain, options.min_group) if test else {}
    if ranking is not None:
        metrics["ranking"] = measure(ranking, prepared.samples)
    return DebiasRun(
        model, network, metrics, selector.rows, prepared, ranking, settled, ranked_by, judge
    )


def check_options(options: DebiasOptions) -> None:
    """Refuses wrong or contradictory options before anything is read."""
    if options.rank_method is not None:
        if options.ranking is not None:
            raise UsageError("--ranking, --rank-method: contradict each other; give one of them")
        ranker_class(options.rank_method, "--rank-method")
    if options.verdicts is not None and "ranking" not in method_class(options.method).needs:
        raise UsageError(f"--verdicts: {options.method} uses no ranking, so no verdicts either")
    if options.verdicts is not None and options.rank_method is not None:
        raise UsageError("--verdicts, --rank-method: verdicts already belong to a ranking")
    if options.ranking is not None and for_ranker(options.overrides):
        raise UsageError("--ranking, --set rank.…: settings come too late for a finished ranking")
    require("--select", options.select)
    if options.select == "groups" and options.method == "auto":
        raise UsageError("--select groups: auto chooses without attributes; name another --method")
    if not method_class(options.method).in_processes:
        require_one(f"--method {options.method}")
    _method(options, mode="finetune")  # whichever the mode will be, the same values are valid


def _method(options: DebiasOptions, mode: str) -> tuple[Method[Any], Settled[Any]]:
    kind = method_class(options.method)
    preset, own = named_preset(options.preset), for_method(options.overrides)
    settled = settle(kind.config_class, "debias", options.method, mode, preset, own)
    return kind(settled.config), settled


def _settle(
    prepared: Prepared, options: DebiasOptions, ranking: Ranking | None
) -> tuple[Method[Any], Settled[Any]]:
    """The method and its settings, checked against the data and the ranking."""
    method, settled = _method(options, prepared.mode)
    check_needs(method, prepared.samples, options.rank_method)
    if ranking is not None:
        ranking.taken(prepared.readable("train"))
    return method, settled


def _model(prepared: Prepared, network: Network, method: str) -> Model:
    """The trained network as something that takes raw images or texts."""
    classes = prepared.samples.classes
    details = {"method": method, "data": prepared.source.data, "version": __version__}
    if prepared.mode != "features" or prepared.samples.kind == "features":
        return Model(network, classes, (network.spec,), details, prepared.tokeniser)
    spec = prepared.backbone_spec()
    if prepared.wide:
        spec, network = prepared.over_cells(network)
    backbone = networks.build(spec, 0, prepared.weights).to(prepared.device)
    whole = assemble([backbone, network])
    return Model(whole, classes, (spec, network.spec), details, prepared.tokeniser)


def _evaluate(prepared: Prepared, parts: Parts, network: Network, min_group: int) -> dict[str, Any]:
    """Scores on the test split, else on val, else on what was held out of training."""
    samples = prepared.samples
    for name in ("test", "val"):
        if len(samples.rows(name)):
            predicted = predicted_classes(network, prepared.task(name))
            samples = prepared.samples  # without what could not be read
            found = score(samples, samples.rows(name), predicted, min_group)
            return {"split": name, **found.to_dict()}
    if len(parts.evaluate) == 0:
        return {}
    index = torch.from_numpy(parts.evaluate).to(prepared.device)
    predicted = predicted_classes(network, prepared.task("train").subset(index))
    rows = samples.rows("train")[parts.evaluate]
    return {"split": "heldout", **score(samples, rows, predicted, min_group).to_dict()}


def _selection(selector: Any) -> dict[str, Any]:
    out = {"criterion": selector.criterion, "best_epoch": selector.best_epoch}
    if selector.rows and "score" in selector.rows[-1]:
        out["score"] = selector.best_score
    return out


def write_debias_run(folder: RunFolder, run: DebiasRun, identity: dict[str, Any]) -> None:
    folder.write_config({**identity, **run.settled.tables(), **run.ranked_by})
    run.model.save(folder.path)
    if run.ranking is not None:
        run.ranking.save(folder.path / RANKING)
    folder.write_history(run.history)
    folder.write_quarantine(run.prepared.faults)
    run.metrics["run"] = str(folder.path)
