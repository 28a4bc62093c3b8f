"""One data set, prepared once; every run leaves a row, and a row that is there is not rerun."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra import __version__
from sebra.debiasing.model import Model
from sebra.debiasing.registry import method_class
from sebra.engine.session import ProgressSink, Session, Silent
from sebra.errors import Interrupted, UsageError
from sebra.measuring.ranks import known_attributes
from sebra.ranking.ranking import Blind, Ranking
from sebra.ranking.registry import ranker_class
from sebra.runs.config import NO_PRESET, ranking_network, settle
from sebra.runs.folder import RunFolder
from sebra.runs.meter import Meter
from sebra.samples.table import Samples
from sebra.workflows.debias import DebiasOptions, DebiasRun, debias_prepared
from sebra.workflows.evaluate import evaluate_model
from sebra.workflows.prepare import for_ranking, prepare
from sebra.workflows.prepared import Prepared, Source
from sebra.workflows.rank import measure, ranking_of
from sebra.workflows.validation import make_selector
from sebra_bench.companions.measure import wanted
from sebra_bench.disparity import performance_disparity, subset_accuracy
from sebra_bench.facts import facts, fingerprint, runs_beside
from sebra_bench.plan import (
    BOTH,
    OWN_RANKER,
    BenchOptions,
    Spec,
    backbone_name,
    data_name,
    preset_for,
    slug_of,
)
from sebra_bench.protocol import Protocol
from sebra_bench.rows import ROWS, Row, Rows, present, settings_of
from sebra_bench.seeds import seeded
from sebra_bench.watching import Watch

RANKINGS = "rankings"  # folder of the tables of rankings


@dataclass(frozen=True)
class Trained:
    """One training and what its row says of it."""

    run: DebiasRun
    meter: Meter
    notes: list[str]
    ranked: Row | None
    watch: Watch | None = None

    def take(self, kind: str) -> dict[str, Any]:
        """The model as a table's criterion chose it is the one to evaluate; says how it did."""
        chosen = None if self.watch is None else self.watch.take(kind)
        found: dict[str, Any] = self.run.metrics["selection"]
        return found if chosen is None else chosen


class Workbench:
    """Runs methods and rankers on one data set.

    `model` and `ranking` return the row of one run: from disk where it is finished, else after
    running it. Rankings are shared by all methods of a seed.
    """

    def __init__(
        self,
        source: Source,
        options: BenchOptions,
        folder: RunFolder,
        progress: ProgressSink | None = None,
    ) -> None:
        self.options, self.folder = options, folder
        self.progress: ProgressSink = progress or Silent()
        self.meter = Meter()
        self.preset = preset_for(source.data, options.preset)
        session = Session(progress=progress)
        self.prepared = prepare(source, session, self.meter, preset=self.preset)
        self._ranking_on: dict[tuple[str | None, str | None], Prepared] = {}
        self.ranking_on(OWN_RANKER)  # what cannot be had is refused before any run
        self.name = data_name(source.data)
        self._beside = wanted(source.data)
        self._content = fingerprint(self.prepared.samples)
        self.rows = Rows(folder.path / ROWS)

    @property
    def samples(self) -> Samples:
        return self.prepared.samples

    def ranking_on(self, ranker: str) -> Prepared:
        """The data set with the network that a ranker uses; what lies on the device is shared."""
        key = self._ranking_network(ranker)
        if key not in self._ranking_on:
            self._ranking_on[key] = for_ranking(self.prepared, *key, self.meter)
        return self._ranking_on[key]

    def _ranking_network(self, ranker: str) -> tuple[str | None, str | None]:
        """Weights and mode as the user or else the preset has them."""
        weights, mode = self.options.rank_weights, self.options.rank_mode
        if self.prepared.mode == "features":
            for option, value in (("--rank-weights", weights), ("--rank-mode", mode)):
                if value not in (None, "features"):
                    raise UsageError(
                        f"{option}: rankings over frozen features share their backbone"
                    )
            return None, None
        if mode == "features" and self.prepared.weights is None:
            raise UsageError("--rank-mode features: needs pretrained weights; give --weights FILE")
        of_preset = ranking_network(self.preset, ranker)
        return weights or of_preset[0], mode or of_preset[1] or ranker_class(ranker).usual_mode

    def method_config(self, spec: Spec) -> Any:
        """The configuration a method runs with here."""
        kind = method_class(spec.name).config_class
        mode = self.prepared.mode
        return settle(kind, "debias", spec.name, mode, self.preset, spec.overrides).config

    def ranker_config(self, spec: Spec) -> Any:
        """The configuration a ranker runs with here."""
        kind = ranker_class(spec.name).config_class
        mode = self.ranking_on(spec.name).mode
        return settle(kind, "rank", spec.name, mode, self.preset, spec.overrides).config

    @property
    def judges_have_groups(self) -> bool:
        """Whether true groups could choose: those of val, or of training where there is no val."""
        samples = self.samples
        rows = samples.rows("val") if len(samples.rows("val")) else samples.rows("train")
        return bool(samples.attributes) and bool(known_attributes(samples)[rows].any())

    def needs(self, spec: Spec) -> frozenset[str]:
        """What a method cannot do without; it can depend on its settings."""
        found: frozenset[str] = method_class(spec.name)(self.method_config(spec)).needs
        return found

    def _measure_beside(self, model: Model) -> dict[str, Any]:
        """Gaps to the sets that DATA names beside its test split."""
        assert self._beside is not None
        split, clean = evaluate_model(model, self.samples, self.options.min_group)
        return self._beside(model, self.samples, split, clean)

    # What a run is --------------------------------------------------------------------------

    def model_identity(self, spec: Spec, seed: int, ranker: Spec | None) -> dict[str, Any]:
        out = {
            **self._base_identity(self.prepared),
            "seed": seed,
            "method": spec.name,
            "settings": settings_of(self.method_config(spec)),
            "min_group": self.options.min_group,
        }
        if ranker is not None:
            out["ranker"] = ranker.name
            out["ranker_settings"] = settings_of(self.ranker_config(ranker))
            on = self.ranking_on(ranker.name)
            out["ranker_weights"] = _digest(on)
            if on.mode == "features" != self.prepared.mode:
                out["ranker_mode"] = on.mode
        return out

    def ranking_identity(self, spec: Spec, seed: int) -> dict[str, Any]:
        settings = settings_of(self.ranker_config(spec))
        on = self.ranking_on(spec.name)
        out = {**self._base_identity(on), "seed": seed, "ranker": spec.name, "settings": settings}
        if self._has_pd and _digest(on) != _digest(self.prepared):
            out["pd_weights"] = _digest(self.prepared)  # another network than the one that ranks
        return out

    @property
    def _has_pd(self) -> bool:
        """Whether rankings are judged by PD, the measure that needs no attributes.

        It trains networks and looks at the test split: under the protocol nothing does that.
        """
        if self.options.protocol is not None or self.samples.attributes:
            return False
        return len(self.samples.rows("test")) > 0

    def _base_identity(self, p: Prepared) -> dict[str, Any]:
        """Content instead of paths, so that rows of several machines can lie in one folder."""
        out: dict[str, Any] = {
            "version": __version__,
            "data": self.name,
            "content": self._content,
            "attributes": list(p.samples.attributes),
            "mode": p.mode,
            "backbone": backbone_name(p.backbone),
            "weights": _digest(p),
            "image_size": p.image_size,
        }
        return {k: v for k, v in out.items() if v is not None}

    # Runs -----------------------------------------------------------------------------------

    def find_model(self, spec: Spec, seed: int, ranker: Spec | None) -> Row | None:
        if self.options.protocol is not None:
            return Protocol(self, spec, ranker).find(seed)
        identity = self.model_identity(spec, seed, ranker)
        return self.rows.find(self.key("model", spec, seed, ranker), identity)

    def find_ranking(self, spec: Spec, seed: int) -> Row | None:
        return self.rows.find(self.key("ranking", spec, seed), self.ranking_identity(spec, seed))

    def key(self, kind: str, spec: Spec, seed: int, ranker: Spec | None = None) -> dict[str, Any]:
        return {
            "kind": kind,
            "data": self.name,
            "method": spec.label,
            "ranker": None if ranker is None else ranker.label,
            "seed": seed,
        }

    def model(self, spec: Spec, seed: int, ranker: Spec | None) -> Row:
        """The row of one trained and evaluated model."""
        if self.options.protocol is not None:
            return Protocol(self, spec, ranker).row(seed)
        found = self.find_model(spec, seed, ranker)
        if found is not None:
            return found
        identity = self.model_identity(spec, seed, ranker)
        trained = self.trained(spec, seed, ranker)
        row = {
            **self.key("model", spec, seed, ranker),
            **self.row_of(trained, identity, trained.run.metrics["evaluation"]),
        }
        # The model holds a graph of itself; without this, memory of many runs piles up.
        del trained
        gc.collect()
        return self.rows.add(present(row))

    def trained(
        self, spec: Spec, seed: int, ranker: Spec | None, select: str = "auto", test: bool = True
    ) -> Trained:
        """One training with all that its row needs; test: whether the test split is looked at.

        select: as in DebiasOptions, or `both`: the criteria of both tables watch.
        """
        ranked = None if ranker is None else self.ranking(ranker, seed)
        ranking = None if ranker is None else self._ranking_table(ranker, seed)
        prepared = seeded(self.prepared, seed)
        options = DebiasOptions(
            spec.name,
            self.preset,
            spec.overrides,
            min_group=self.options.min_group,
            select="auto" if select == BOTH else select,
        )
        made: list[Watch] = []

        def watch(*given: Any) -> Watch:
            made.append(Watch.make(*given))
            return made[0]

        choose = watch if select == BOTH else make_selector
        wide = self.options.protocol is None  # on equal terms everyone sees the same features
        with self.running(f"{spec.label} seed {seed}") as (session, meter):
            run = debias_prepared(prepared, options, session, meter, ranking, test, choose, wide)
            if self._beside is not None and test:
                with meter.phase("companions"):
                    run.metrics["evaluation"] |= self._measure_beside(run.model)
        return Trained(run, meter, list(session.notes), ranked, *made)

    def row_of(
        self, trained: Trained, identity: dict[str, Any], evaluation: dict[str, Any] | None
    ) -> dict[str, Any]:
        """What a row says of a training beside its key."""
        return {
            "evaluation": evaluation,
            "selection": trained.run.metrics["selection"],
            "ranking": None if trained.ranked is None else trained.ranked["ranking"],
            **trained.meter.result(),
            **self.facts(self.prepared),
            "notes": trained.notes,
            "settings": identity["settings"],
            "identity": identity,
        }

    def ranking(self, spec: Spec, seed: int) -> Row:
        """The row of one ranking; its table lies in a folder beside the rows."""
        found = self.find_ranking(spec, seed)
        return self._rank(spec, seed)[0] if found is None else found

    def _ranking_table(self, spec: Spec, seed: int) -> Ranking:
        file = self._ranking_file(spec, seed)
        # Rows are kept in version control, their tables are not.
        return Ranking.load(file) if file.is_file() else self._rank(spec, seed)[1]

    def _ranking_file(self, spec: Spec, seed: int) -> Path:
        name = f"{slug_of(self.name)}.{spec.slug}-{seed}.parquet"
        return self.folder.path / RANKINGS / name

    def to_rank(self, seed: int, ranker: str = OWN_RANKER) -> Prepared:
        """The data set for a ranking with this seed."""
        seeded(self.prepared, seed)  # unreadable images leave before the first ranking
        found = self.ranking_on(ranker)
        found.samples = self.prepared.samples
        return seeded(found, seed)

    def _rank(self, spec: Spec, seed: int) -> tuple[Row, Ranking]:
        identity = self.ranking_identity(spec, seed)
        prepared = self.to_rank(seed, spec.name)
        ranker = ranker_class(spec.name)(self.ranker_config(spec))
        with self.running(f"ranking {spec.label} seed {seed}") as (session, meter):
            ranking = ranking_of(prepared, ranker, session, meter, Blind())
            figures = measure(ranking, prepared.samples)
            if self._has_pd:
                with meter.phase("pd"):  # with the trained network, whichever one ranked
                    figures.update(_disparity(seeded(self.prepared, seed), ranking, session))
        row = {
            **self.key("ranking", spec, seed),
            "ranking": figures,
            **meter.result(),
            **self.facts(prepared),
            "notes": list(session.notes),
            "settings": identity["settings"],
            "identity": identity,
        }
        file = self._ranking_file(spec, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        ranking.save(file)
        return self.rows.add(present(row)), ranking

    def facts(self, p: Prepared) -> dict[str, Any]:
        """What a row says of where and with what it was measured."""
        backbone = backbone_name(p.backbone)
        network = {"mode": p.mode, "backbone": backbone, "image_size": p.image_size}
        together = max(self.options.jobs, runs_beside())
        return {
            "data": self.name,
            "preset": self.preset or NO_PRESET,
            "network": present(network),
            # Seconds of runs that shared the machine are not those of a run alone.
            **({"runs_together": together} if together > 1 else {}),
            **facts(p.device),
        }

    @contextmanager
    def running(self, what: str, session: Session | None = None) -> Iterator[tuple[Session, Meter]]:
        """A session (that given) and a meter for one run; an interrupt says what is kept."""
        self.progress.message(f"{self.name}: {what} begins")
        session, meter = session or Session(progress=self.progress), Meter()
        try:
            with session.stoppable():
                yield session, meter
        except Interrupted as stop:
            said = (
                f"interrupted during {what}; finished rows stay in {self.folder.path}: "
                "the same command with the same --out continues"
            )
            raise Interrupted(said, stop.args[1]) from None
        finally:
            seconds = meter.result()["seconds"]["total"]
        self.progress.message(f"{self.name}: {what} done in {seconds:.1f} s")


def model_label(spec: Spec, ranker: Spec | None) -> str:
    """What tables call a method on a ranker."""
    if ranker is None or ranker.label == OWN_RANKER:
        return spec.label
    return f"{spec.label} on {ranker.label}"


def _digest(prepared: Prepared) -> str:
    return prepared.weights.digest if prepared.weights else "none"


def _disparity(prepared: Prepared, ranking: Ranking, session: Session) -> dict[str, Any]:
    """PD, the measure of a ranking where no attribute is known."""
    labels = prepared.task("train").targets.cpu().numpy()

    def train_and_score(index: npt.NDArray[np.int64]) -> float:
        return subset_accuracy(prepared, index, session)

    found = performance_disparity(train_and_score, ranking.table["rank"].to_numpy(), labels)
    return {"pd": found["pd"], "pd_details": found}
