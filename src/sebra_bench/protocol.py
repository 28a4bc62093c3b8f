"""One protocol for all methods (docs/protocol.md): as many settings, validation chooses, test once.

Seed 0 trains every declared setting without looking at the test split; the one with the highest
validation score is that of all seeds. `label-free`: no attribute reaches training or choice.
`groups`: the worst true group of validation chooses, and methods may be told the groups. `both`:
one training serves both tables; each criterion watches it and keeps its own weights.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sebra.errors import UsageError
from sebra_bench.plan import BOTH, GROUPS, LABEL_FREE, Spec, tables_of
from sebra_bench.rows import Row, present

if TYPE_CHECKING:
    from sebra_bench.workbench import Trained, Workbench

GRIDS = Path(__file__).with_name("grids.toml")
TOLD = frozenset({"groups", "heldout_groups"})
Trials = dict[str, list[Row]]  # of each table, a row for every setting


@cache
def grids(file: Path) -> dict[str, Any]:
    """The declared settings."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return found


def declared(mode: str) -> list[list[str]]:
    """The settings that are tried of every method today."""
    found: list[list[str]] = grids(GRIDS)[mode]["settings"]
    return found


def settings_for(spec: Spec, mode: str) -> list[Spec]:
    """The method with each of the declared settings; what its label says of itself stays."""
    found = grids(GRIDS)
    own = found["own"].get(spec.name, [])
    shared = [*found[mode]["shared"], *own]
    return [
        replace(spec, overrides=(*shared, *setting, *spec.overrides))
        for setting in found[mode]["settings"]
    ]


@dataclass(frozen=True)
class Protocol:
    """A method on its ranker under the protocol."""

    bench: Workbench
    spec: Spec
    ranker: Spec | None

    @property
    def _settings(self) -> list[Spec]:
        return settings_for(self.spec, self.bench.prepared.mode)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The tables in which this method has a row on this data set."""
        asked = tables_of(str(self.bench.options.protocol))
        told = bool(self.bench.needs(self.spec) & TOLD)
        if told and asked == (LABEL_FREE,):
            raise UsageError("is told the true groups: it stands in the other table")
        can = {LABEL_FREE: not told, GROUPS: self.bench.judges_have_groups or len(asked) == 1}
        found = tuple(kind for kind in asked if can[kind])
        if not found:
            raise UsageError("is told the true groups, and no validation sample has one")
        return found

    def find(self, seed: int) -> Row | None:
        """The finished row (of the first table), if every choice was made and all runs are there.

        A method that has no row here has none to find; `row` says why.
        """
        try:
            kinds = self.kinds
        except UsageError:
            return None
        found = [self._finished(kind, seed) for kind in kinds]
        return None if None in found else found[0]

    def _finished(self, kind: str, seed: int) -> Row | None:
        trials = [self._trial(kind, k) for k in range(len(self._settings))]
        known = [t for t in trials if t is not None]
        if len(known) < len(trials):
            return None
        chosen = self._settings[_best(known)]
        return self.bench.rows.find(self._key(kind, "model", seed), self._identity(chosen, seed))

    def row(self, seed: int) -> Row:
        """The row of a seed (of the first table); the choice is made first, with seed 0."""
        found = self.find(seed)
        if found is not None:
            return found
        gc.collect()  # a model holds a graph of itself; memory of many runs would pile up
        trials, kept = self._choose()
        rows: dict[str, Row] = {}
        for k in dict.fromkeys(_best(trials[kind]) for kind in self.kinds):
            missing = [
                kind
                for kind in self.kinds
                if _best(trials[kind]) == k and self._finished(kind, seed) is None
            ]
            if not missing:
                continue
            reused = kept.get(k) if seed == 0 else None
            trained = reused or self._train(self._settings[k], seed)
            for kind in missing:
                rows[kind] = self._judged(kind, k, seed, trained, trials[kind])
        first = self.kinds[0]
        return rows.get(first) or self._need(first, seed)

    def _need(self, kind: str, seed: int) -> Row:
        found = self._finished(kind, seed)
        assert found is not None
        return found

    def _choose(self) -> tuple[Trials, dict[int, Trained]]:
        """A row for every setting and table, and models that were trained just now and are best."""
        trials: Trials = {kind: [] for kind in self.kinds}
        kept: dict[int, Trained] = {}
        for k, setting in enumerate(self._settings):
            found = {kind: self._trial(kind, k) for kind in self.kinds}
            trained = None
            if None in found.values():
                trained = self._train(setting, 0)
            for kind, row in found.items():
                known = row
                if known is None:
                    assert trained is not None
                    known = self._keep_trial(kind, k, setting, trained)
                trials[kind].append(known)
            best = {_best(rows) for rows in trials.values()}
            kept = {i: t for i, t in kept.items() if i in best}
            if trained is not None and k in best:
                kept[k] = trained
        return trials, kept

    def _train(self, setting: Spec, seed: int) -> Trained:
        select = {LABEL_FREE: "auto", GROUPS: "groups"}[self.kinds[0]]
        if len(self.kinds) == 2:
            select = BOTH
        if self.spec.name == "auto":
            select = "auto"  # it chooses by itself, without attributes, in either table
        return self.bench.trained(setting, seed, self.ranker, select, test=False)

    def _judged(self, kind: str, k: int, seed: int, trained: Trained, trials: Sequence[Row]) -> Row:
        """The row of a model; the one look at the test split."""
        chosen = self._settings[k]
        identity = self._identity(chosen, seed)
        selection = trained.take(kind)
        row = {
            **self._key(kind, "model", seed),
            **self.bench.row_of(trained, identity, trained.run.evaluate()),
            "selection": selection,
            "tuning": {
                "chosen": list(chosen.overrides),
                "declared": declared(self.bench.prepared.mode),
                "scores": [t["selection"].get("score") for t in trials],
            },
        }
        return self.bench.rows.add(present(row))

    def _trial(self, kind: str, k: int) -> Row | None:
        identity = self._identity(self._settings[k], 0)
        return self.bench.rows.find({**self._key(kind, "trial", 0), "setting": k}, identity)

    def _keep_trial(self, kind: str, k: int, setting: Spec, trained: Trained) -> Row:
        row = {
            **self._key(kind, "trial", 0),
            "setting": k,
            **self.bench.row_of(trained, self._identity(setting, 0), None),
            "selection": trained.take(kind),
        }
        return self.bench.rows.add(present(row))

    def _key(self, kind: str, row: str, seed: int) -> dict[str, Any]:
        return {**self.bench.key(row, self.spec, seed, self.ranker), "protocol": kind}

    def _identity(self, setting: Spec, seed: int) -> dict[str, Any]:
        return self.bench.model_identity(setting, seed, self.ranker)


def _best(trials: Sequence[Mapping[str, Any]]) -> int:
    return best_of([t["selection"].get("score") for t in trials])


def best_of(scores: Sequence[float | None]) -> int:
    """The place of the highest validation score, of equals the first.

    A last layer that cross-validation chose for itself has none where there is no val split.
    """
    known = [float("-inf") if score is None else score for score in scores]
    return known.index(max(known))
