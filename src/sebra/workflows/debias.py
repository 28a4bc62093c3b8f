"""`sebra debias`: DATA (and a ranking) in, a model that needs no shortcut out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sebra import __version__
from sebra.debiasing.method import Method
from sebra.debiasing.model import Model, assemble
from sebra.debiasing.registry import method_class
from sebra.engine import networks
from sebra.engine.device import load_optimisers
from sebra.engine.networks import Network
from sebra.engine.session import ProgressSink, Session
from sebra.errors import UsageError
from sebra.measuring.groups import MIN_GROUP, score
from sebra.processes import require_one
from sebra.ranking.ranking import Ranking
from sebra.ranking.registry import ranker_class
from sebra.runs.config import Settled, for_method, for_ranker, ranking_network, settle
from sebra.runs.folder import CONFIG, RANKING, RunFolder
from sebra.runs.meter import Meter
from sebra.samples.leakage import leakage, leakage_note
from sebra.samples.table import SPLITS, Samples
from sebra.values import require
from sebra.workflows.history import History, predicted_classes
from sebra.workflows.needs import annotated, check_needs, help_for
from sebra.workflows.prepare import for_ranking, prepare
from sebra.workflows.prepared import Prepared, Source
from sebra.workflows.presets import named_preset
from sebra.workflows.rank import (
    RankOptions,
    finish,
    identity_of,
    measure,
    open_session,
    ranker_for,
    ranking_of,
)
from sebra.workflows.suspects import add_noise
from sebra.workflows.validation import Parts, make_selector, split_training

LAST_EPOCHS = 5


@dataclass(frozen=True)
class DebiasOptions:
    """What `debias` takes besides the source."""

    method: str = "sebra"
    preset: str | None = None
    overrides: tuple[str, ...] = ()
    ranking: str | None = None
    rank_method: str | None = None
    min_group: int = MIN_GROUP

    def __post_init__(self) -> None:
        require("--min-group", self.min_group)


@dataclass
class DebiasRun:
    """A trained model with everything that was measured on the way."""

    model: Model
    metrics: dict[str, Any]
    history: list[dict[str, Any]]
    prepared: Prepared
    ranking: Ranking | None
    settled: Settled[Any]
    ranked_by: dict[str, dict[str, Any]]  # the ranker's settings, as `config.toml` has them

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
            if options.ranking is not None:
                ranking = Ranking.load(options.ranking)
            prepared = prepare(source, session, meter, samples, named_preset(options.preset))
            for name in SPLITS:
                if len(prepared.samples.rows(name)):
                    prepared.readable(name)
            leaks = leakage_note(leakage(prepared.samples))
            if leaks is not None:
                session.note(leaks)
            _settle(prepared, options, ranking)
        with meter.phase("start"):
            load_optimisers()
        with meter.phase("debias"):
            run = debias_prepared(prepared, options, session, meter, ranking)
    if folder is not None:
        with meter.phase("write"):
            write_debias_run(folder, run, identity)
    finish(run.metrics, meter, folder)
    session.close()
    return run


def debias_prepared(
    prepared: Prepared,
    options: DebiasOptions,
    session: Session,
    meter: Meter,
    ranking: Ranking | None = None,
) -> DebiasRun:
    """Trains on a prepared data set; ranks first where the method needs it and none is given."""
    method, settled = _settle(prepared, options, ranking)
    config, ranked_by = settled.config, _ranked_by(ranking)
    if ranking is not None:
        ranking = ranking.taken(prepared.split("train")[0])  # a table of its own, in this order
    if ranking is None and "ranking" in method.needs:
        ranking, ranked_by = _rank_first(prepared, options, method, session, meter)
    if ranking is not None and config.weighs_noise and "noise" not in ranking.table:
        add_noise(ranking, prepared, session, meter)
    parts = split_training(prepared.samples, prepared.source.seed)
    if "groups" in method.needs:
        parts = annotated(prepared.samples, parts, session)
    rank = None if ranking is None else ranking.table["rank"].to_numpy()
    selector = make_selector(prepared, parts, rank, config.epochs - LAST_EPOCHS)
    session.note(f"model selection: {selector.criterion}")
    with meter.phase("debias"):
        index = torch.from_numpy(parts.train).to(prepared.device)
        task = prepared.task("train").subset(index)
        aid = help_for(prepared, parts, ranking, method.needs, session)
        network = method.fit(task, replace(aid, selector=selector), session)
    model = _model(prepared, network, options.method)
    with meter.phase("evaluate"):
        evaluation = _evaluate(prepared, parts, network, options.min_group)
    metrics: dict[str, Any] = {
        "version": __version__,
        "data": prepared.source.data,
        "method": options.method,
        "samples": len(prepared.samples),
        "evaluation": evaluation,
        "selection": _selection(selector),
        "notes": list(session.notes),
    }
    if ranking is not None:
        metrics["ranking"] = measure(ranking, prepared.samples)
    return DebiasRun(model, metrics, selector.rows, prepared, ranking, settled, ranked_by)


def check_options(options: DebiasOptions) -> None:
    """Refuses wrong or contradictory options before anything is read."""
    if options.rank_method is not None:
        if options.ranking is not None:
            raise UsageError("--ranking, --rank-method: contradict each other; give one of them")
        ranker_class(options.rank_method, "--rank-method")
    if options.ranking is not None and for_ranker(options.overrides):
        raise UsageError("--ranking, --set rank.…: the ranking is made; settings come too late")
    if not method_class(options.method).in_processes:
        require_one(f"--method {options.method}")
    _method(options, mode="finetune")  # whichever the mode will be, the same values are valid


def _method(options: DebiasOptions, mode: str) -> tuple[Method[Any], Settled[Any]]:
    kind = method_class(options.method)
    settled = settle(
        kind.config_class,
        "debias",
        options.method,
        mode,
        named_preset(options.preset),
        for_method(options.overrides),
    )
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


def _ranked_by(ranking: Ranking | None) -> dict[str, dict[str, Any]]:
    """What the run of a ranking that was given says of its settings."""
    run = None if ranking is None or ranking.folder is None else RunFolder(ranking.folder)
    if run is None or not run.has(CONFIG):
        return {}
    found = run.read_config()
    named = {"method": found.get("method"), **found.get("settings", {})}
    return {"rank": named, "rank_from": dict(found.get("settings_from", {}))}


def _rank_first(
    prepared: Prepared, options: DebiasOptions, method: Any, session: Session, meter: Meter
) -> tuple[Ranking, dict[str, dict[str, Any]]]:
    """The ranking that `sebra rank` would make, and its settings."""
    name = options.rank_method or method.ranker
    preset = named_preset(options.preset)
    part, _ = prepared.split("train")
    on = for_ranking(prepared, *ranking_network(preset, name), meter)
    chosen = RankOptions(name, preset, for_ranker(options.overrides))
    ranker, settled = ranker_for(chosen, on.mode)
    session.note(f"ranking first (method {name}); --ranking RUN uses an earlier one")

    def compute() -> dict[str, torch.Tensor]:
        history = History(prepared.samples, None, None)
        figures = ranking_of(on, ranker, session, meter, history).table.select_dtypes("number")
        return {str(c): torch.from_numpy(figures[c].to_numpy().copy()) for c in figures}

    found = session.once("ranking", compute)
    import pandas as pd

    label = np.asarray(part.classes, dtype=object)[part.labels]
    table = pd.DataFrame({"id": part.ids, "label": label})
    tables = settled.tables("rank")
    tables["rank"] = {"method": name, **tables["rank"]}
    return Ranking(table.assign(**{k: v.numpy() for k, v in found.items()})), tables


def _model(prepared: Prepared, network: Network, method: str) -> Model:
    """The trained network as something that takes raw images or texts."""
    classes = prepared.samples.classes
    details = {"method": method, "data": prepared.source.data, "version": __version__}
    if prepared.mode != "features" or prepared.samples.kind == "features":
        return Model(network, classes, (network.spec,), details, prepared.tokeniser)
    spec = prepared.backbone_spec()
    backbone = networks.build(spec, 0, prepared.weights).to(prepared.device)
    whole = assemble([backbone, network])
    return Model(whole, classes, (spec, network.spec), details, prepared.tokeniser)


def _evaluate(prepared: Prepared, parts: Parts, network: Network, min_group: int) -> dict[str, Any]:
    """Scores on the test split, else on val, else on what was held out of training."""
    samples = prepared.samples
    for name in ("test", "val"):
        if len(samples.rows(name)):
            task = prepared.task(name)
            samples = prepared.samples
            predicted = predicted_classes(network, task)
            found = score(samples, samples.rows(name), predicted, min_group)
            return {"split": name, **found.to_dict()}
    if len(parts.heldout) == 0:
        return {}
    index = torch.from_numpy(parts.heldout).to(prepared.device)
    predicted = predicted_classes(network, prepared.task("train").subset(index))
    rows = samples.rows("train")[parts.heldout]
    return {"split": "heldout", **score(samples, rows, predicted, min_group).to_dict()}


def _selection(selector: Any) -> dict[str, Any]:
    last = [r["test_accuracy"] for r in selector.rows if "test_accuracy" in r][-LAST_EPOCHS:]
    out = {"criterion": selector.criterion, "best_epoch": selector.best_epoch}
    if selector.rows and "score" in selector.rows[-1]:
        out["score"] = selector.best_score
    if selector.settled:  # the last row is the model; those before it led to it
        last = last[-1:]
    if last:
        out["mean_of_last_epochs"] = float(np.mean(last))
    return out


def write_debias_run(folder: RunFolder, run: DebiasRun, identity: dict[str, Any]) -> None:
    folder.write_config({**identity, **run.settled.tables(), **run.ranked_by})
    run.model.save(folder.path)
    if run.ranking is not None:
        run.ranking.save(folder.path / RANKING)
    folder.write_history(run.history)
    folder.write_quarantine(run.prepared.faults)
    run.metrics["run"] = str(folder.path)
